#include "core/server.h"

#include <stdlib.h>
#include <string.h>

void server_request_fini(struct server_request *request)
{
    buffer_fini(&request->body);
    *request = (struct server_request){0};
}

/* Keys do not stay in freed memory. */
static void forget(char *secret)
{
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void server_command_fini(struct server_command *command)
{
    free(command->interpreter);
    free(command->host);
    forget(command->api_key);
    forget(command->generate_key);
    *command = (struct server_command){0};
}
