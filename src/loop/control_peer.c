/* Who is at the other end of a connection: what the kernel noted when it was made. */
#include "loop/control_private.h"
#include "base/memory.h"
#include "sys/socket_peer.h"

#include <stdlib.h>

enum error_code control_peer_new(struct control_server *server, int descriptor, struct control_peer **ret_peer,
                                 struct error *err)
{
    struct socket_peer who;
    enum error_code code = socket_peer_read(descriptor, CONTROL_GROUPS, &who, err);
    if (code != ERROR_NONE)
        return code;
    struct control_peer *peer = memory_new(sizeof *peer);
    *peer = (struct control_peer){.references = 1,
                                  .uid = who.uid,
                                  .pid = who.pid,
                                  .gid = who.gid,
                                  .groups = who.groups,
                                  .group_count = who.group_count,
                                  .account = control_account_take(server, who.uid)};
    *ret_peer = peer;
    return ERROR_NONE;
}

void control_peer_drop(struct control_peer *peer)
{
    if (peer == NULL || --peer->references > 0)
        return;
    control_account_drop(peer->account);
    free(peer->groups);
    free(peer->by);
    free(peer);
}
