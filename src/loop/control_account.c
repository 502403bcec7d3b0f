/* What the connections of one user hold of our memory together: begun lines, requests that wait for their answer,
 * answers that he does not read. */
#include "loop/control_private.h"
#include "base/memory.h"

#include <stdlib.h>

enum { SMALL_BYTES = 4096, RESERVED_BYTES = 1024 * 1024 /* for small parts: hello, status, stop */ };

struct control_account *control_account_take(struct control_server *server, uid_t uid)
{
    struct control_account *account = server->accounts;
    while (account != NULL && account->uid != uid)
        account = account->next;
    if (account == NULL) {
        account = memory_new(sizeof *account);
        account->uid = uid;
        account->next = server->accounts;
        account->link = &server->accounts;
        if (account->next != NULL)
            account->next->link = &account->next;
        server->accounts = account;
    }
    account->references++;
    return account;
}

static void unlink_account(struct control_account *account)
{
    if (account->link == NULL)
        return;
    *account->link = account->next;
    if (account->next != NULL)
        account->next->link = account->link;
    account->link = NULL;
}

void control_account_drop(struct control_account *account)
{
    if (account == NULL || --account->references > 0)
        return;
    unlink_account(account);
    free(account);
}

void control_account_change(struct control_account *account, size_t from, size_t to)
{
    if (account != NULL)
        account->bytes = account->bytes - from + to;
}

void control_account_forget(struct control_server *server)
{
    while (server->accounts != NULL)
        unlink_account(server->accounts);
}

enum error_code control_account_check(const struct control_account *account, size_t more_bytes, size_t part_bytes,
                                      struct error *err)
{
    size_t most = CONTROL_USER_BYTES - (part_bytes > SMALL_BYTES ? RESERVED_BYTES : 0);
    if (account == NULL || account->uid == 0 || account->bytes + more_bytes <= most)
        return ERROR_NONE;
    return error_set(err, ERROR_BUSY,
                     "requests and unread answers of user %u would take more than %d MiB, the limit for one user; wait "
                     "for answers, read them, or close connections",
                     (unsigned)account->uid, CONTROL_USER_BYTES / 1024 / 1024);
}
