/* Who listens on a TCP port: ours or somebody else. Any thread; reads /proc. */
#pragma once

#include "base/error.h"
#include "sys/process.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

enum listener_owner {
    LISTENER_NONE,    /* nobody listens on the port */
    LISTENER_OWN,     /* one of the given processes holds a listening socket */
    LISTENER_FOREIGN, /* somebody listens, but none of the given processes */
};

struct listener {
    enum listener_owner owner;
    pid_t pid;                      /* the holder: LISTENER_OWN; LISTENER_FOREIGN where it could be found, else 0 */
    char comm[PROCESS_COMM];        /* its name, or "" */
    char address[INET6_ADDRSTRLEN]; /* where it listens: "127.0.0.1", "0.0.0.0", "::1", "::" */
    bool ipv6;
    bool foreign_too; /* LISTENER_OWN: another process listens on the same port as well (other address, or shared port)
                       */
};

/* Looks in the network namespace of process `of` (0: ours). `own`: processes of the run (kill_tree_collect). A socket
 * held by several own processes is told for the first of them. ERROR_SYSTEM when the tables cannot be read. */
enum error_code listener_find(pid_t of, uint16_t port, const struct process_list *own, struct listener *ret_listener,
                              struct error *err);

/* True when a server could listen on `port` on all addresses again: bind with SO_REUSEADDR and listen succeed. Takes
 * the port for that moment. */
bool listener_port_is_free(uint16_t port);

/* Pure: one line of /proc/net/tcp or tcp6. False: no listening socket on `port`. */
bool listener_parse_line(const char *line, uint16_t port, struct listener *ret_listener, uint64_t *ret_inode);
