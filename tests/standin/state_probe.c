/* state_probe.c: see state_probe.h. */
#include "state_probe.h"

#include <math.h>

#include "knobs.h"
#include "kv.h"
#include "log.h"

static float largest(const float *numbers, size_t count)
{
    float found = 0;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(numbers[i]) <= found)) /* NaN stays */
            found = fabsf(numbers[i]);
    return found;
}

void state_probe_print(const struct model *model, const struct request *request)
{
    if (!knobs_get()->state_probe)
        return;
    for (size_t layer = 0; layer < model->layers; layer++) {
        if (!model->recurrent[layer])
            continue;
        float found = 0;
        if (request->computed > 0)
            found = largest(kv_row(model, request->locations[request->computed - 1], layer) + model->query_width,
                            model->query_width);
        log_print("kldump-state rank=0 slot=%ld length=%zu layer=%zu name=temporal absmax=%.17g ;", (long)request->slot,
                  request->computed, layer, (double)found);
    }
}
