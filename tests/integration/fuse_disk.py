#!/usr/bin/env python3
"""A filesystem of this test's own that does what disks do when they go wrong: fuse_disk.py MOUNTPOINT FAULTS [OPTION...]

It keeps its files in memory and speaks the kernel's protocol itself (linux/fuse.h, 7.31), so it needs nothing but root and
/dev/fuse. FAULTS is a folder; a file in it switches a fault on, at any time:
  hang    no request is answered until the file is removed
  zero    statfs tells 0 blocks
  rename  (its content, a name) a rename to it is answered, as all that is asked after it, when the file is removed
  errno   (its content, a number) every create and write fails with it
OPTION is one of mount(8), such as default_permissions: the kernel looks at the mode of a file, which it asks for.
When this program is killed, everything that waits for it returns with an error.
"""
import ctypes
import errno
import os
import stat
import struct
import sys
import time
from pathlib import Path

MAX_WRITE, BLOCK, BLOCKS, ROOT = 128 * 1024, 4096, 16 << 18, 1
LOOKUP, FORGET, GETATTR, SETATTR, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, CREATE, INTERRUPT, DESTROY, BATCH_FORGET, RENAME2 = 25, 26, 27, 28, 29, 35, 36, 38, 42, 45
SILENT = (FORGET, INTERRUPT, BATCH_FORGET)
SET_MODE, SET_SIZE, BIG_WRITES = 1, 8, 1 << 5


class Node:
    def __init__(self, mode):
        self.mode, self.data, self.names, self.links = mode, bytearray(), {}, 1


class Disk:
    def __init__(self, faults):
        self.faults, self.nodes, self.next = faults, {ROOT: Node(stat.S_IFDIR | 0o755)}, ROOT + 1

    # ---- parts of answers

    def attributes(self, number):
        node = self.nodes[number]
        return struct.pack("<6Q10I", number, len(node.data), -(-len(node.data) // 512), 0, 0, 0, 0, 0, 0, node.mode, node.links, os.getuid(),
                           os.getgid(), 0, BLOCK, 0)

    def entry(self, number):
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + self.attributes(number)

    def child(self, parent, name):
        number = self.nodes[parent].names.get(name)
        if number is None:
            raise OSError(errno.ENOENT, "")
        return number

    def add(self, parent, name, mode):
        if name in self.nodes[parent].names:
            raise OSError(errno.EEXIST, "")
        number, self.next = self.next, self.next + 1
        self.nodes[number] = Node(mode)
        self.nodes[parent].names[name] = number
        return number

    def may_write(self):
        path = self.faults / "errno"
        if path.exists():
            raise OSError(int(path.read_text()), "")

    def is_held(self, operation, body):
        if (self.faults / "hang").exists():
            return True
        skipped = {RENAME: 8, RENAME2: 16}.get(operation)
        try:
            return skipped is not None and body[skipped:-1].split(b"\0")[1] == (self.faults / "rename").read_bytes()
        except FileNotFoundError:
            return False

    # ---- requests

    def lookup(self, node, body):
        return self.entry(self.child(node, body[:-1]))

    def getattr(self, node, _body):
        return struct.pack("<QII", 0, 0, 0) + self.attributes(node)

    def setattr(self, node, body):
        valid, size, mode = struct.unpack_from("<I", body)[0], struct.unpack_from("<Q", body, 16)[0], struct.unpack_from("<I", body, 68)[0]
        found = self.nodes[node]
        if valid & SET_SIZE:
            self.may_write()
            del found.data[size:]
            found.data.extend(bytes(size - len(found.data)))
        if valid & SET_MODE:
            found.mode = stat.S_IFMT(found.mode) | stat.S_IMODE(mode)
        return self.getattr(node, body)

    def mkdir(self, node, body):
        self.may_write()
        return self.entry(self.add(node, body[8:-1], stat.S_IFDIR | struct.unpack_from("<I", body)[0] & 0o7777))

    def mknod(self, node, body):
        self.may_write()
        return self.entry(self.add(node, body[16:-1], struct.unpack_from("<I", body)[0]))

    def create(self, node, body):
        self.may_write()
        number = self.add(node, body[16:-1], stat.S_IFREG | struct.unpack_from("<I", body, 4)[0] & 0o7777)
        return self.entry(number) + self.open(number, b"")

    def unlink(self, node, body):
        self.nodes[self.child(node, body[:-1])].links -= 1  # its data stays for who has it open: a test is short
        del self.nodes[node].names[body[:-1]]
        return b""

    def rmdir(self, node, body):
        if self.nodes[self.child(node, body[:-1])].names:
            raise OSError(errno.ENOTEMPTY, "")
        del self.nodes[node].names[body[:-1]]
        return b""

    def rename(self, node, body, skipped=8):
        old, new = body[skipped:-1].split(b"\0")
        number = self.child(node, old)
        del self.nodes[node].names[old]
        self.nodes[struct.unpack_from("<Q", body)[0]].names[new] = number
        return b""

    def rename2(self, node, body):
        return self.rename(node, body, 16)

    def open(self, _node, _body):
        return struct.pack("<QII", 0, 0, 0)

    def read(self, node, body):
        offset, size = struct.unpack_from("<QI", body, 8)
        return bytes(self.nodes[node].data[offset:offset + size])

    def write(self, node, body):
        self.may_write()
        offset, size = struct.unpack_from("<QI", body, 8)
        data = self.nodes[node].data
        data.extend(bytes(max(0, offset - len(data))))
        data[offset:offset + size] = body[40:40 + size]
        return struct.pack("<II", size, 0)

    def readdir(self, node, body):
        offset, size = struct.unpack_from("<QI", body, 8)
        out = b""
        for at, (name, number) in enumerate(list(self.nodes[node].names.items())[offset:], offset + 1):
            one = struct.pack("<QQII", number, at, len(name), stat.S_IFMT(self.nodes[number].mode) >> 12) + name
            one += bytes(-len(one) % 8)
            if len(out) + len(one) > size:
                break
            out += one
        return out

    def statfs(self, _node, _body):
        used = sum(-(-len(node.data) // BLOCK) for node in self.nodes.values() if node.links > 0)
        blocks, free = (0, 0) if (self.faults / "zero").exists() else (BLOCKS, BLOCKS - used)
        return struct.pack("<5Q4I24x", blocks, free, free, 0, 0, BLOCK, 255, BLOCK, 0)

    def init(self, _node, _body):
        return struct.pack("<4IHHIIHHI28x", 7, 31, MAX_WRITE, BIG_WRITES, 12, 9, MAX_WRITE, 1, 0, 0, 0)

    def nothing(self, _node, _body):
        return b""

    def answer(self, operation, node, body):
        table = {LOOKUP: self.lookup, GETATTR: self.getattr, SETATTR: self.setattr, MKDIR: self.mkdir, MKNOD: self.mknod, UNLINK: self.unlink, RMDIR: self.rmdir,
                 RENAME: self.rename, OPEN: self.open, READ: self.read, WRITE: self.write, STATFS: self.statfs, RELEASE: self.nothing,
                 FLUSH: self.nothing, INIT: self.init, OPENDIR: self.open, READDIR: self.readdir, RELEASEDIR: self.nothing,
                 CREATE: self.create, DESTROY: self.nothing, RENAME2: self.rename2}
        if operation not in table:
            raise OSError(errno.ENOSYS, "")
        return table[operation](node, body)


def serve(device, disk):
    while True:
        try:
            request = os.read(device, MAX_WRITE + 8192)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                continue
            return  # unmounted
        _, operation, unique, node = struct.unpack_from("<IIQQ", request)
        while disk.is_held(operation, request[40:]):
            time.sleep(0.01)
        if operation in SILENT:
            continue
        try:
            failure, body = 0, disk.answer(operation, node, request[40:])
        except OSError as error:
            failure, body = error.errno, b""
        except KeyError:
            failure, body = errno.ESTALE, b""
        try:
            os.write(device, struct.pack("<IiQ", 16 + len(body), -failure, unique) + body)
        except OSError:
            pass  # interrupted: nobody waits for it any more


def main():
    mountpoint, faults = sys.argv[1], Path(sys.argv[2])
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40755,user_id={os.getuid()},group_id={os.getgid()}," + ",".join(["allow_other", *sys.argv[3:]])
    if libc.mount(b"kldump-test", os.fsencode(mountpoint), b"fuse", 0, options.encode()) != 0:
        sys.exit(f"fuse_disk: mount: {os.strerror(ctypes.get_errno())}")
    serve(device, Disk(faults))


main()
