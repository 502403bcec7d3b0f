#include "conf/settings.h"

#include <stdio.h>

static const char *const moods[] = {
    "able", "bold", "brave", "brisk",  "calm", "clear", "clever", "cool",   "deep", "eager", "early",
    "fair", "fast", "fine",  "fleet",  "fond", "free",  "fresh",  "gentle", "glad", "grand", "happy",
    "keen", "kind", "late",  "lively", "loud", "lucky", "mild",   "modest", "neat", "noble",
};
static const char *const creatures[] = {
    "badger", "bear", "beetle", "bison", "crane", "crow",  "deer", "dove",  "eagle", "falcon", "finch",
    "fox",    "frog", "goose",  "hare",  "hawk",  "heron", "ibis", "jay",   "lark",  "lynx",   "mole",
    "moth",   "newt", "otter",  "owl",   "raven", "robin", "seal", "stork", "swan",  "wren",
};

void settings_random_name(uint64_t randomness, char *ret_name, size_t size)
{
    enum { MOODS = sizeof moods / sizeof moods[0], CREATURES = sizeof creatures / sizeof creatures[0] };
    snprintf(ret_name, size, "%s-%s-%u", moods[randomness % MOODS], creatures[(randomness >> 8) % CREATURES],
             (unsigned)((randomness >> 16) % 90 + 10));
}
