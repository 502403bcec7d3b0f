/* What of an environment a server does not get. Any thread. */
#pragma once

#include "base/list.h"

enum environment_origin {
    ENVIRONMENT_OURS,   /* of the wrapper: it was started where CMD would have been */
    ENVIRONMENT_CLIENT, /* of a client of kldumpd: what it says of its own service, folders and run is wrong here */
};

/* Removes what a service manager gave to the process that had this environment, so that the server does not speak in
 * its name, take its sockets or write into its folders, and what kldump itself sets or reads. kldumpd(8) has the list.
 */
void environment_clean(struct list *environment, enum environment_origin origin);
