#include "sglang/prefix.h"

#include "base/text.h"

#include <ctype.h>
#include <string.h>

/* What runs under these is not a child of ours in the end: it outlives every kill, and its disk may be another one.
 * `unless`: with this option it is a child after all. */
static const struct {
    const char *name, *unless;
} outside[] = {
    {"docker", NULL},
    {"podman", NULL},
    {"nerdctl", NULL},
    {"ctr", NULL},
    {"kubectl", NULL},
    {"oc", NULL},
    {"ssh", NULL},
    {"mosh", NULL},
    {"sudo", NULL},
    {"doas", NULL},
    {"su", NULL},
    {"runuser", NULL},
    {"pkexec", NULL},
    {"srun", NULL},
    {"sbatch", NULL},
    {"salloc", NULL},
    {"qsub", NULL},
    {"bsub", NULL},
    {"lxc", NULL},
    {"lxc-attach", NULL},
    {"incus", NULL},
    {"machinectl", NULL},
    {"systemd-run", "--scope"},
    {"tmux", NULL},
    {"screen", NULL},
    {"docker-compose", NULL},
};

/* Programs that start what follows. `valued`: options whose value is the next word, between blanks; `own`: words of
 * their own behind the options; `verb`: a word that must come first; `chooses`: it decides which python is found. */
static const struct program {
    const char *name, *verb, *valued;
    unsigned int own;
    bool chooses;
} programs[] = {
    {"env", NULL, " -u --unset -C --chdir -a --argv0 ", 0, true},
    {"nice", NULL, " -n --adjustment ", 0, false},
    {"ionice", NULL, " -c --class -n --classdata ", 0, false},
    {"chrt", NULL, " -T -P -D ", 1, false},
    {"taskset", NULL, " ", 1, false},
    {"numactl", NULL,
     " -N -m -C -i -p -P -w --cpunodebind --membind --physcpubind --interleave --preferred --preferred-many ", 0,
     false},
    {"stdbuf", NULL, " -i -o -e --input --output --error ", 0, false},
    {"timeout", NULL, " -s --signal -k --kill-after ", 1, false},
    {"time", NULL, " -f --format -o --output ", 0, false},
    {"nohup", NULL, " ", 0, false},
    {"setsid", NULL, " ", 0, false},
    {"prlimit", NULL, " ", 0, false},
    {"systemd-run", NULL, " -p --property -u --unit --slice -E --setenv --description --uid --gid ", 0, false},
    {"dumb-init", NULL, " -r --rewrite ", 0, false},
    {"tini", NULL, " -p -e ", 0, false},
    {"strace", NULL, " -o -e -p -E -s -P ", 0, false},
    {"catchsegv", NULL, " ", 0, false},
    {"uv", "run",
     " -p --python --with --with-editable --with-requirements --extra --group --only-group --project --directory "
     "--env-file --index --default-index -i --index-url --extra-index-url -f --find-links --package --cache-dir "
     "--config-file ",
     0, true},
    {"conda", "run", " -n --name -p --prefix --cwd ", 0, true},
    {"mamba", "run", " -n --name -p --prefix --cwd ", 0, true},
    {"micromamba", "run", " -n --name -p --prefix --cwd -r --root-prefix -e --env ", 0, true},
    {"poetry", "run", " ", 0, true},
    {"pipenv", "run", " ", 0, true},
    {"pdm", "run", " -p --project ", 0, true},
    {"pixi", "run", " -e --environment --manifest-path ", 0, true},
};
enum { PROGRAMS = sizeof programs / sizeof programs[0], SHELL_WORDS = 256 };

const char *prefix_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static const struct program *find_program(const struct list *words, size_t at)
{
    for (size_t i = 0; i < PROGRAMS && at < words->count; i++)
        if (strcmp(prefix_base_name(words->items[at]), programs[i].name) == 0 &&
            (programs[i].verb == NULL ||
             (at + 1 < words->count && strcmp(words->items[at + 1], programs[i].verb) == 0)))
            return &programs[i];
    return NULL;
}

static bool takes_value(const struct program *program, const char *option)
{
    const char *found = program->valued;
    size_t length = strlen(option);
    while ((found = strstr(found, option)) != NULL) {
        if (found > program->valued && found[-1] == ' ' && found[length] == ' ')
            return true;
        found += 1;
    }
    return false;
}

static bool is_assignment(const char *word)
{
    size_t length = 0;
    while (isalnum((unsigned char)word[length]) || word[length] == '_')
        length++;
    return length > 0 && word[length] == '=' && !isdigit((unsigned char)word[0]);
}

/* Behind the program at `at`: where what it starts begins. */
static size_t skip_program(const struct list *words, size_t at, const struct program *program)
{
    size_t i = at + 1 + (program->verb != NULL ? 1 : 0);
    unsigned int own = program->own;
    for (; i < words->count; i++) {
        const char *word = words->items[i];
        if (word[0] == '-') {
            i += takes_value(program, word) ? 1 : 0;
            continue;
        }
        if (strcmp(program->name, "env") == 0 && is_assignment(word))
            continue;
        if (own == 0)
            break;
        own--;
    }
    return i < words->count ? i : words->count;
}

size_t prefix_end(const struct list *words, size_t at)
{
    for (const struct program *program; (program = find_program(words, at)) != NULL;)
        at = skip_program(words, at, program);
    return at;
}

void prefix_choosers(const struct list *words, size_t program, struct list *ret_words)
{
    for (size_t at = 0; at < program;) {
        const struct program *found = find_program(words, at);
        if (found == NULL)
            return;
        size_t end = skip_program(words, at, found);
        if (end > program || find_program(words, end) == NULL)
            end = program; /* an option that the table does not know has hidden where the python begins */
        for (size_t i = at; found->chooses && i < end; i++)
            list_add(ret_words, words->items[i]);
        at = end;
    }
}

static const char *is_outside(const struct list *words, size_t at)
{
    for (size_t i = 0; at < words->count && i < sizeof outside / sizeof outside[0]; i++) {
        bool child = false;
        if (strcmp(prefix_base_name(words->items[at]), outside[i].name) != 0)
            continue;
        for (size_t k = at; outside[i].unless != NULL && k < words->count; k++)
            child = child || strcmp(words->items[k], outside[i].unless) == 0;
        return child ? NULL : outside[i].name;
    }
    return NULL;
}

/* One command of a shell's line: its program, behind assignments and words of the shell. */
static const char *outside_simple(const struct list *words)
{
    static const char *const skipped[] = {"exec", "time", "command", "then", "else", "do", "if", "while", "!", "{"};
    size_t at = 0;
    bool server = false, again = true;
    while (again && at < words->count) {
        again = is_assignment(words->items[at]);
        for (size_t i = 0; i < sizeof skipped / sizeof skipped[0]; i++)
            again = again || strcmp(words->items[at], skipped[i]) == 0;
        at += again ? 1 : 0;
    }
    for (size_t i = at; i < words->count; i++)
        server = server || strstr(words->items[i], "sglang") != NULL;
    for (const struct program *program; server; at = skip_program(words, at, program)) {
        const char *found = is_outside(words, at);
        program = find_program(words, at);
        if (found != NULL || program == NULL)
            return found;
    }
    return NULL;
}

static const char *outside_line(const char *line)
{
    struct list words = {NULL, 0};
    const char *found = NULL;
    for (const char *at = line; found == NULL && words.count < SHELL_WORDS; at++) {
        size_t length = strcspn(at, " \t\n;&|()'\"");
        if (length > 0)
            list_add_format(&words, "%.*s", (int)length, at);
        at += length;
        if (*at == '\0' || strchr("\n;&|()", *at) != NULL) {
            found = outside_simple(&words);
            list_fini(&words);
            words = (struct list){NULL, 0};
        }
        if (*at == '\0')
            break;
    }
    list_fini(&words);
    return found;
}

static bool is_shell(const char *word)
{
    static const char *const shells[] = {"sh", "bash", "dash", "zsh", "ksh", "ash"};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(prefix_base_name(word), shells[i]) == 0)
            return true;
    return false;
}

const char *prefix_outside(const struct list *words, size_t program)
{
    const char *found = NULL;
    for (size_t i = 0; i < program && found == NULL; i++) /* before the server's python any word may be a program */
        found = is_outside(words, i);
    size_t at = 0;
    for (const struct program *prefix; found == NULL; at = skip_program(words, at, prefix)) {
        found = is_outside(words, at);
        prefix = find_program(words, at);
        if (prefix == NULL)
            break;
    }
    if (found != NULL || at >= words->count || !is_shell(words->items[at]))
        return found;
    for (size_t i = at + 1; i + 1 < words->count && words->items[i][0] == '-'; i++)
        if (words->items[i][1] != '-' && strchr(words->items[i], 'c') != NULL)
            return outside_line(words->items[i + 1]);
    return NULL;
}

bool prefix_drops(const struct list *words, size_t end, const char *name)
{
    for (size_t at = 0; at < end;) {
        const struct program *program = find_program(words, at);
        if (program == NULL)
            return false;
        size_t next = skip_program(words, at, program);
        for (size_t i = at + 1; strcmp(program->name, "env") == 0 && i < next && i < words->count; i++) {
            const char *word = words->items[i];
            if (strcmp(word, "-i") == 0 || strcmp(word, "-") == 0 || strcmp(word, "--ignore-environment") == 0)
                return true;
            if (i + 1 < next && (strcmp(word, "-u") == 0 || strcmp(word, "--unset") == 0) &&
                strcmp(words->items[i + 1], name) == 0)
                return true;
            if ((text_starts(word, "-u") && strcmp(word + 2, name) == 0) ||
                (text_starts(word, "--unset=") && strcmp(word + 8, name) == 0))
                return true;
        }
        at = next;
    }
    return false;
}

bool prefix_holds_output(const struct list *words, size_t end)
{
    bool holds = false;
    for (size_t i = 0; i < end && i < words->count; i++) {
        const char *word = words->items[i];
        if (strcmp(prefix_base_name(word), "conda") == 0)
            holds = true;
        if (strcmp(word, "--no-capture-output") == 0 || strcmp(word, "--live-stream") == 0)
            return false;
    }
    return holds;
}
