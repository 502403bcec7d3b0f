/* libFuzzer's entry; FUZZ_TARGET is one of fuzz.h. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    return FUZZ_TARGET(bytes, length);
}
