/* The network as the dumper uses it: each rank of an SGLang server listens for control calls of the others on a random
 * port of all interfaces, without a password, and unpickles what comes (SGLang 0.5.23, srt/debug_utils/dumper.py). */
#include "base/text.h"
#include "ctl/doctor.h"
#include "sglang/needs.h"
#include "sys/file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The address that the machine would use towards a far one; nothing is sent. False: there is no route. */
static bool own_address(char text[INET_ADDRSTRLEN])
{
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(80)}, own;
    socklen_t length = sizeof own;
    inet_pton(AF_INET, NEEDS_REMOTE_ADDRESS, &far.sin_addr);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && connect(fd, (struct sockaddr *)&far, sizeof far) == 0 &&
                 getsockname(fd, (struct sockaddr *)&own, &length) == 0 &&
                 inet_ntop(AF_INET, &own.sin_addr, text, INET_ADDRSTRLEN) != NULL;
    if (fd >= 0)
        close(fd);
    return found;
}

/* What the host name stands for, where that is of use to the dumper. */
static bool named_address(char text[INET_ADDRSTRLEN])
{
    char name[256];
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (gethostname(name, sizeof name) != 0 || getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    const struct sockaddr_in *address = (const struct sockaddr_in *)(const void *)found->ai_addr;
    bool told = inet_ntop(AF_INET, &address->sin_addr, text, INET_ADDRSTRLEN) != NULL;
    freeaddrinfo(found);
    return told && strcmp(text, "127.0.0.1") != 0 && strcmp(text, "0.0.0.0") != 0;
}

void doctor_network_address(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    char address[INET_ADDRSTRLEN];
    (void)doctor;
    if (own_address(address)) {
        doctor_say(ret_finding, DOCTOR_PASS, "%s, by the default route", address);
    } else if (named_address(address)) {
        doctor_say(ret_finding, DOCTOR_PASS, "%s, by the host name (there is no default route)", address);
    } else {
        doctor_say(ret_finding, DOCTOR_FAIL,
                   "there is no default route, and the host name has no address: the dumper would call itself at "
                   "tcp://None, and hang");
        doctor_advise(ret_finding, "ip route add default dev lo src 127.0.0.1 (in a network namespace), or give the "
                                   "host name an address in /etc/hosts");
    }
}

/* "eth0 10.0.0.5, eth1 10.1.0.5" of interfaces that are up and no loopback; IPv6 link-local addresses are left out. */
static void list_interfaces(const struct ifaddrs *first, char *text, size_t size)
{
    size_t used = 0;
    for (const struct ifaddrs *i = first; i != NULL; i = i->ifa_next) {
        char address[INET6_ADDRSTRLEN];
        const void *bytes = NULL;
        if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0)
            continue;
        if (i->ifa_addr->sa_family == AF_INET)
            bytes = &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
        else if (i->ifa_addr->sa_family == AF_INET6)
            bytes = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;
        if (bytes == NULL || inet_ntop(i->ifa_addr->sa_family, bytes, address, sizeof address) == NULL ||
            text_starts(address, "fe80:"))
            continue;
        int n = snprintf(text + used, size - used, "%s%s %s", used > 0 ? ", " : "", i->ifa_name, address);
        if (n < 0 || (size_t)n >= size - used)
            break;
        used += (size_t)n;
    }
}

void doctor_network_exposure(struct doctor *doctor, struct doctor_finding *ret_finding)
{
    struct ifaddrs *interfaces = NULL;
    struct buffer range;
    unsigned low = 0, high = 0;
    char where[400] = "";
    (void)doctor;
    if (getifaddrs(&interfaces) != 0) {
        doctor_say(ret_finding, DOCTOR_WARN, "the network interfaces cannot be listed: %s", strerror(errno));
        return;
    }
    list_interfaces(interfaces, where, sizeof where);
    freeifaddrs(interfaces);
    if (where[0] == '\0') {
        doctor_say(ret_finding, DOCTOR_PASS, "no interface but loopback is up");
        return;
    }
    buffer_init(&range);
    if (file_read("/proc/sys/net/ipv4/ip_local_port_range", 256, &range, NULL) != ERROR_NONE ||
        sscanf(range.data, "%u %u", &low, &high) != 2)
        low = 1024, high = 65535;
    buffer_fini(&range);
    doctor_say(ret_finding, DOCTOR_WARN,
               "%s: while a run lives, each rank's dumper takes calls there on a random port (%u-%u) without a "
               "password; who can connect can run code as you, and --host does not cover it",
               where, low, high);
    doctor_advise(ret_finding, "close those ports to others, or run all of it in a network namespace: both recipes are "
                               "in kldumpctl(1), SECURITY");
}
