/* server_info.h: the answers of /server_info, /model_info, /v1/models and /v1/loads. */
#ifndef KLDUMP_STANDIN_SERVER_INFO_H
#define KLDUMP_STANDIN_SERVER_INFO_H

#include <cjson/cJSON.h>

/* The keys of the real answer that say something about a dump run (of 556 in 0.5.23), keys in clear included. */
cJSON *server_info_server(void);
cJSON *server_info_model(void);
cJSON *server_info_models(void);

/* From now on /model_info has this weight_version (as /update_weight_version sets it). */
void server_info_set_weights(const char *version);

/* /v1/loads: a snapshot that the main process reads without asking the scheduler. */
cJSON *server_info_loads(void);

#endif
