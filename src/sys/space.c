#include "sys/space.h"

#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

static uint64_t space_bytes(uint64_t blocks, uint64_t unit)
{
    return number_multiply(blocks, unit);
}

void space_from_statvfs(const struct statvfs *figures, struct space *ret_space)
{
    uint64_t unit = figures->f_frsize ? figures->f_frsize : figures->f_bsize;
    uint64_t blocks = figures->f_blocks, available = figures->f_bavail, unused = figures->f_bfree;
    if (available > blocks) /* reserve larger than what is free: the count wrapped below zero */
        available = 0;
    if (unused > blocks)
        unused = 0;
    uint64_t used = blocks - unused;
    *ret_space = (struct space){
        .measurable = blocks > 0 && unit > 0,
        .total_bytes = space_bytes(number_add(used, available), unit),
        .free_bytes = space_bytes(available, unit),
        .inodes_counted = figures->f_files > 0,
        .total_inodes = figures->f_files,
        .free_inodes = figures->f_favail > figures->f_files ? 0 : figures->f_favail,
        .read_only = (figures->f_flag & ST_RDONLY) != 0,
    };
}

enum error_code space_read(int fd, struct space *ret_space, struct error *err)
{
    struct statvfs figures;
    while (fstatvfs(fd, &figures) < 0)
        if (errno != EINTR)
            return error_set_errno(err, ERROR_SYSTEM, errno, "cannot read the free space");
    space_from_statvfs(&figures, ret_space);
    return ERROR_NONE;
}

/* Numbers of linux/magic.h, and of filesystems that keep theirs to themselves (ZFS, Lustre, GPFS, BeeGFS, CIFS). */
static const struct {
    uint32_t number;
    const char *name;
    bool lags;
} space_types[] = {
    {0xEF53, "ext4", false},        {0x58465342, "xfs", false},     {0x9123683E, "btrfs", true},
    {0x01021994, "tmpfs", false},   {0x794C7630, "overlay", false}, {0x6969, "nfs", true},
    {0x65735546, "fuse", true},     {0xFF534D42, "cifs", true},     {0xFE534D42, "smb2", true},
    {0x2FC12FC1, "zfs", true},      {0xF2F52010, "f2fs", false},    {0x0BD00BD0, "lustre", true},
    {0x47504653, "gpfs", true},     {0x19830326, "beegfs", true},   {0x00C36400, "ceph", true},
    {0x01021997, "9p", true},       {0x6A656A63, "virtiofs", true}, {0x858458F6, "ramfs", false},
    {0xCA451A4E, "bcachefs", true},
};

const char *space_type(int fd, char buffer[SPACE_TYPE_TEXT])
{
    struct statfs figures;
    if (fstatfs(fd, &figures) < 0)
        return "unknown";
    uint32_t number = (uint32_t)figures.f_type;
    for (size_t i = 0; i < sizeof space_types / sizeof space_types[0]; i++)
        if (space_types[i].number == number)
            return space_types[i].name;
    snprintf(buffer, SPACE_TYPE_TEXT, "type 0x%x", number);
    return buffer;
}

bool space_type_lags(const char *type)
{
    for (size_t i = 0; i < sizeof space_types / sizeof space_types[0]; i++)
        if (strcmp(space_types[i].name, type) == 0)
            return space_types[i].lags;
    return true; /* not known: promise less */
}

uint64_t space_pending_from_text(const char *text, size_t length)
{
    static const char *const wanted[] = {"Dirty:", "Writeback:", "WritebackTmp:", "NFS_Unstable:"};
    uint64_t sum = 0;
    const char *end = text + length;
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (stop == NULL)
            stop = end;
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            size_t name = strlen(wanted[i]);
            if ((size_t)(stop - text) < name || memcmp(text, wanted[i], name) != 0)
                continue;
            const char *number = text + name;
            while (number < stop && *number == ' ')
                number++;
            uint64_t kib = 0;
            if (number_scan(number, (size_t)(stop - number), &kib) > 0)
                sum = number_add(sum, number_multiply(kib, 1024));
        }
        text = stop < end ? stop + 1 : end;
    }
    return sum;
}

int space_open_pending(void)
{
    return open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
}

uint64_t space_read_pending(int fd)
{
    char text[4096];
    ssize_t length = fd >= 0 ? pread(fd, text, sizeof text, 0) : -1;
    return length > 0 ? space_pending_from_text(text, (size_t)length) : 0;
}
