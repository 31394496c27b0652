"""A program that attacks its sandbox, run inside of it: `python attacks.py HOST.json`. It prints what each attack came to, as JSON.

Each attack is a function that returns what it has reached; None, or an error of the system, where it reached nothing. Each runs in a
process of its own, so that one which is killed ends no other. `HOST.json` names what the test has put outside: sockets, a process, a
key, a queue, files.
"""

import ctypes
import fcntl
import glob
import json
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import termios

X86 = platform.machine() == "x86_64"
LIBC = ctypes.CDLL(None, use_errno=True)
ATTACKS = {}
HOST = {}
SECONDS = 10


def attack(function):
    ATTACKS[function.__name__] = function
    return function


def done(result, what="done"):
    """Return what was reached by a call of the system, or raise its error."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return what if what != "done" else f"returned {result}"


def call(x86, arm, *arguments):
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return LIBC.syscall(ctypes.c_long(x86 if X86 else arm), *given)


def connected(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(3)
        one.connect(address)
        one.send(b"canary")
        return f"connected to {address!r}"


def opened(path, flags=os.O_RDONLY):
    descriptor = os.open(path, flags)
    try:
        if flags != os.O_RDONLY:
            return f"opened {path}"
        content = os.read(descriptor, 200)  # of a private place there is nothing in it
        return content and f"opened {path}: {content!r}"
    finally:
        os.close(descriptor)


def outside(name):
    return os.path.join(HOST["outside"], name)


# The network


@attack
def tcp_of_the_host():
    return connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", HOST["tcp"]))


@attack
def tcp6_of_the_host():
    return connected(socket.AF_INET6, socket.SOCK_STREAM, ("::1", HOST["tcp6"]))


@attack
def udp_of_the_host():
    return connected(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", HOST["udp"])) and "sent"


@attack
def raw_packets():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return "made a raw socket"


@attack
def packets_of_the_wire():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300) as one:
        one.bind(("lo", 0))
        return "bound a packet socket"


@attack
def virtual_machine_sockets():
    with socket.socket(40, socket.SOCK_STREAM):  # AF_VSOCK: no namespace of the network closes it
        return "made a vsock"


@attack
def cipher_sockets():
    with socket.socket(38, socket.SOCK_SEQPACKET):  # AF_ALG
        return "made a socket of the kernel's ciphers"


@attack
def netlink_of_the_host():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) as one:  # events of devices
        one.bind((0, 1))
        return "listens to the kernel's events"


@attack
def abstract_socket_of_the_host():
    return connected(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + HOST["abstract"])


@attack
def abstract_datagrams_of_the_host():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.sendto(b"canary", "\0" + HOST["abstract_datagrams"])
        return "sent"


@attack
def datagrams_by_a_pair():
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        for address in (HOST["datagrams"], "\0" + HOST["abstract_datagrams"]):
            try:
                one, _ = socket.socketpair(socket.AF_UNIX, kind)
                return one.sendto(b"canary", address) and f"sent to {address!r}"
            except OSError:
                continue
    return None


@attack
def unix_socket_in_a_folder_of_the_host():
    return connected(socket.AF_UNIX, socket.SOCK_STREAM, HOST["socket"])


@attack
def sockets_of_agents_and_desktops():
    names = [value for name, value in os.environ.items() if name.endswith(("_SOCK", "_ADDRESS", "_HOST", "DISPLAY"))]
    places = ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
              "/run/containerd/containerd.sock", "/run/snapd.socket", "/run/nscd/socket"]  # fmt: skip
    patterns = ["/run/user/*/*", "/tmp/ssh-*/*", "/tmp/.X11-unix/*", "/tmp/tmux-*/*", "/tmp/dbus-*"]
    found = [one for one in [*places, *(path for one in patterns for path in glob.glob(one))] if os.path.exists(one)]
    for one in found:
        try:
            return connected(socket.AF_UNIX, socket.SOCK_STREAM, one)
        except OSError:
            continue
    return f"the environment names {names}" if names else None


@attack
def rings_that_open_and_connect():
    return done(call(425, 425, 8, ctypes.create_string_buffer(240)), "made an io_uring")


# Keys and the environment


@attack
def keys_in_the_environment():
    return next((f"{name}={value}" for name, value in os.environ.items() if "canary" in value), None)


@attack
def keys_of_other_processes():
    for path in [*glob.glob("/proc/[0-9]*/environ"), *glob.glob("/proc/[0-9]*/cmdline")]:
        try:
            with open(path, "rb") as file:
                if b"canary" in file.read():
                    return f"read {path}"
        except OSError:
            continue
    return None


@attack
def files_of_other_processes():
    victim = HOST["victim"]
    for name in ("root/etc/shadow", "cwd/canary", "fd/3", "mem", "maps", "environ", "task"):
        try:
            path = f"/proc/{victim}/{name}"
            return os.listdir(path) and f"listed {path}" if name == "task" else opened(path)
        except OSError:
            continue
    return opened("/proc/1/root/etc/shadow")


@attack
def keyring_of_the_host():
    name = ctypes.create_string_buffer(HOST["key"].encode())
    for ring in (-3, -4, -5):  # of the session, the user, the user's session
        serial = call(250, 219, 10, ring, ctypes.create_string_buffer(b"user"), name, 0)
        if serial >= 0:
            return f"found a key, {serial}"
    raise OSError(ctypes.get_errno(), "keyctl")


@attack
def a_key_that_stays():
    kind, name = ctypes.create_string_buffer(b"user"), ctypes.create_string_buffer(b"treadle-left")
    return done(call(248, 217, kind, name, ctypes.create_string_buffer(b"x"), 1, -4), "left a key")


@attack
def requested_keys():
    kind, name = ctypes.create_string_buffer(b"user"), ctypes.create_string_buffer(HOST["key"].encode())
    return done(call(249, 218, kind, name, None, 0), "requested a key")


@attack
def inherited_descriptors():
    found = []
    for number in range(3, 1024):
        try:
            fcntl.fcntl(number, fcntl.F_GETFD)
        except OSError:
            continue
        if number not in HOST["own"]:
            found.append(number)
    return f"has {found}" if found else None


# Other processes


@attack
def tracing_a_process():
    return done(LIBC.ptrace(0x4206, HOST["victim"], None, None), "seized")


@attack
def memory_of_a_process():
    place = ctypes.create_string_buffer(8)
    own = struct.pack("QQ", ctypes.addressof(place), 8)
    return done(call(310, 270, HOST["victim"], own, 1, own, 1, 0), "read")


@attack
def descriptors_of_a_process():
    descriptor = call(434, 434, HOST["victim"], 0)
    done(descriptor)
    return done(call(438, 438, descriptor, 0, 0), "took a descriptor")


@attack
def signal_to_a_process():
    os.kill(HOST["victim"], signal.SIGCONT)
    return "signalled"


@attack
def signal_by_descriptor():
    descriptor = call(434, 434, HOST["victim"], 0)
    done(descriptor)
    return done(call(424, 424, descriptor, 18, None, 0), "signalled")


@attack
def signal_to_a_thread():
    return done(call(234, 131, HOST["victim"], HOST["victim"], 18), "signalled")


@attack
def signal_with_a_value():
    return done(call(129, 138, HOST["victim"], 18, ctypes.create_string_buffer(128)), "signalled")


@attack
def signal_by_a_pipe():
    given, taken = socket.socketpair()
    fcntl.fcntl(given, 8, HOST["victim"])  # F_SETOWN: who gets SIGIO
    fcntl.fcntl(given, 10, signal.SIGTERM)  # F_SETSIG
    fcntl.fcntl(given, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    taken.send(b"x")  # the test looks whether the process has ended


@attack
def niceness_of_a_process():
    os.setpriority(os.PRIO_PROCESS, HOST["victim"], 19)
    return "set"


@attack
def limits_of_a_process():
    import resource

    resource.prlimit(HOST["victim"], resource.RLIMIT_CORE, (0, 0))
    return "set"


@attack
def processors_of_a_process():
    os.sched_setaffinity(HOST["victim"], {0})
    return "set"


@attack
def scheduling_of_a_process():
    os.sched_setscheduler(HOST["victim"], os.SCHED_BATCH, os.sched_param(0))
    return "set"


@attack
def disk_priority_of_a_process():
    return done(call(251, 30, 1, HOST["victim"], 3 << 13), "set")


@attack
def pages_of_a_process():
    return done(
        call(
            256,
            238,
            HOST["victim"],
            8,
            ctypes.create_string_buffer(b"\1" + bytes(7)),
            ctypes.create_string_buffer(b"\1" + bytes(7)),
        ),
        "moved",
    )


@attack
def comparing_a_process():
    return done(call(312, 272, HOST["victim"], os.getpid(), 1, 0, 0), "compared")


# The terminal


@attack
def the_terminal():
    return opened("/dev/tty", os.O_RDWR)


@attack
def the_terminal_by_name():
    return opened(HOST["terminal"], os.O_RDWR | os.O_NOCTTY)


@attack
def typing_into_the_terminal():
    for number in (0, 1, 2):
        for request, value in ((termios.TIOCSTI, b"x"), (0x541C, b"\x03")):
            try:
                fcntl.ioctl(number, request, value)
                return f"typed at {number}"
            except OSError:
                continue
    return "has a terminal" if any(map(os.isatty, (0, 1, 2))) else None


# Privileges and the kernel


@attack
def becoming_root():
    for line in (["sudo", "-n", "id", "-u"], ["su", "-c", "id -u"], ["mount"]):
        try:
            found = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=5)
        except OSError:
            continue
        if line[0] != "mount" and found.stdout.strip() == b"0" and os.geteuid():
            return f"{line[0]} gave root"
    return None if LIBC.prctl(39, 0, 0, 0, 0) == 1 else "no_new_privs is not set"


@attack
def capabilities():
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    done(call(125, 90, header, data))
    found = struct.unpack("IIIIII", data.raw[:24])
    return f"has {found}" if any(found) else None


@attack
def namespaces_of_users():
    return done(LIBC.unshare(0x10000000), "made a namespace")


@attack
def namespaces_by_clone():
    pid = call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return done(pid, "made a namespace")


@attack
def namespaces_by_clone3():
    size = 88
    pid = call(
        435,
        435,
        ctypes.create_string_buffer(struct.pack("Q", 0x10000000) + bytes(24) + struct.pack("Q", 17) + bytes(size - 40)),
        size,
    )
    if pid == 0:
        os._exit(0)
    return done(pid, "made a namespace")


@attack
def namespaces_of_others():
    return done(LIBC.setns(os.open(f"/proc/{HOST['victim']}/ns/net", os.O_RDONLY), 0), "joined")


@attack
def mounts():
    where = os.path.join(os.getcwd(), "mounted")
    os.makedirs(where, exist_ok=True)
    return done(LIBC.mount(b"none", where.encode(), b"tmpfs", 0, None), "mounted")


@attack
def mounts_of_the_new_kind():
    return done(call(430, 430, ctypes.create_string_buffer(b"tmpfs"), 0), "opened a file system")


@attack
def copies_of_mounts():
    return done(call(428, 428, -100, ctypes.create_string_buffer(b"/"), 1), "copied a mount")


@attack
def unmounting():
    return done(LIBC.umount2(HOST["writable"].encode(), 2), "unmounted")


@attack
def another_root():
    os.chroot(os.getcwd())
    return "changed the root"


@attack
def pivoting_the_root():
    here = ctypes.create_string_buffer(os.getcwd().encode())
    result = call(155, 41, here, here)
    return None if result < 0 and ctypes.get_errno() == 1 else f"errno {ctypes.get_errno()}: the right was there"


@attack
def device_files():
    os.mknod("device", 0o600 | 0o060000, os.makedev(7, 0))
    return opened("device")


@attack
def character_devices():
    os.mknod("memory", 0o600 | 0o020000, os.makedev(1, 1))
    return opened("memory")


@attack
def files_by_handle():
    handle = ctypes.create_string_buffer(struct.pack("Ii", 120, 0) + bytes(120))
    found = os.open(os.getcwd(), os.O_RDONLY)
    done(
        call(303, 264, -100, ctypes.create_string_buffer(os.getcwd().encode()), handle, ctypes.byref(ctypes.c_int()), 0)
    )
    return done(call(304, 265, found, handle, 0), "opened by handle")


@attack
def programs_of_the_kernel():
    return done(
        call(321, 280, 0, ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 8, 1) + bytes(100)), 72),
        "made a map of bpf",
    )


@attack
def counters_of_the_kernel():
    attributes = struct.pack("IIQ", 1, 112, 0) + bytes(24) + struct.pack("Q", 1 << 5 | 1 << 6) + bytes(64)
    return done(call(298, 241, ctypes.create_string_buffer(attributes), 0, -1, -1, 0), "counts")


@attack
def faults_of_pages():
    return done(call(323, 282, 1), "handles faults")


def privileged(x86, arm, *arguments):
    """Call what needs a privilege, with arguments that the kernel refuses after it has looked for that."""
    result = call(x86, arm, *arguments)
    found = ctypes.get_errno()
    return None if result < 0 and found in (1, 13, 38) else f"errno {found}: the right was there"


@attack
def modules_of_the_kernel():
    return privileged(175, 105, None, 0, ctypes.create_string_buffer(b"")) or privileged(
        313, 273, -1, ctypes.create_string_buffer(b""), 0
    )


@attack
def another_kernel():
    return privileged(246, 104, 0, 99, None, 0) or privileged(320, 294, -1, -1, 0, None, 0)


@attack
def restarting_the_machine():
    return privileged(169, 142, 0, 0, 0, None)  # none of its magic numbers


@attack
def swap_and_accounts():
    nothing = ctypes.create_string_buffer(b"/nowhere")
    return privileged(167, 224, nothing, 0) or privileged(163, 89, nothing)


@attack
def the_clock():
    return privileged(
        159, 171, ctypes.create_string_buffer(struct.pack("I", 0x4000) + bytes(256))
    )  # a tick of no length


@attack
def the_name_of_the_machine():
    name = os.uname().nodename.encode()
    return privileged(170, 161, ctypes.create_string_buffer(name), len(name))


@attack
def ports_of_the_processor():
    return privileged(172, 9999, 3) if X86 else None


@attack
def words_of_the_kernel():
    return privileged(103, 116, 10, None, 0)


@attack
def watching_all_files():
    return done(call(300, 262, 0, 0), "watches")


@attack
def room_for_itself():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    return "may never be killed"


# What the machine shares


@attack
def shared_memory():
    LIBC.shmat.restype = ctypes.c_void_p
    found = LIBC.shmat(HOST["shm"], None, 0)
    if found in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(found, 6)


@attack
def removing_shared_memory():
    return done(LIBC.shmctl(HOST["shm"], 0, None), "removed")


@attack
def queues_of_messages():
    return done(LIBC.msgrcv(HOST["msg"], ctypes.create_string_buffer(100), 80, 0, 0o4000), "received")


@attack
def semaphores():
    return done(LIBC.semctl(HOST["sem"], 0, 0), "removed")


@attack
def queues_with_names():
    return done(
        call(240, 180, ctypes.create_string_buffer(HOST["queue"].encode()), os.O_RDONLY | os.O_NONBLOCK, 0, None),
        "opened",
    )


@attack
def named_shared_memory():
    return opened("/dev/shm/" + HOST["shared"])


@attack
def control_groups():
    for folder, _, names in os.walk("/sys/fs/cgroup"):
        for name in {"cgroup.procs", "pids.max", "memory.max", "release_agent"} & set(names):
            try:
                return opened(os.path.join(folder, name), os.O_WRONLY)
            except OSError:
                continue
    return None


@attack
def settings_of_the_kernel():
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
                 "/sys/kernel/uevent_helper", "/sys/power/state"):  # fmt: skip
        try:
            return opened(path, os.O_WRONLY)
        except OSError:
            continue
    return None


@attack
def jobs_for_later():
    for path in ("/var/spool/cron/crontabs/x", "/etc/cron.d/x", "/var/spool/at/x", "/etc/systemd/system/x.service"):
        try:
            return opened(path, os.O_WRONLY | os.O_CREAT)
        except OSError:
            continue
    line = ["systemd-run", "--user", "true"]
    try:
        return (subprocess.run(line, capture_output=True, check=False, timeout=5).returncode == 0 and "ran") or None
    except FileNotFoundError:
        return None


# Files outside


@attack
def writing_by_a_way_around():
    link = "way"
    os.symlink(HOST["outside"], link)
    here = os.open(os.getcwd(), os.O_PATH)
    ways = [outside("new"), f"../{os.path.basename(HOST['outside'])}/new", f"{link}/new", f"/proc/self/cwd/../{os.path.basename(HOST['outside'])}/new",
            f"/proc/self/fd/{here}/../{os.path.basename(HOST['outside'])}/new", f"/proc/1/root{outside('new')}", f"/proc/self/root{outside('new')}"]  # fmt: skip
    for way in ways:
        try:
            return opened(way, os.O_WRONLY | os.O_CREAT)
        except OSError:
            continue
    return None


@attack
def reading_outside():
    return opened(outside("canary"))


@attack
def truncating():
    os.truncate(outside("canary"), 1)
    return "truncated"


@attack
def truncating_while_reading():
    os.close(os.open(outside("canary"), os.O_RDONLY | os.O_TRUNC))
    return "truncated"


@attack
def truncating_what_may_be_read():
    os.close(os.open(HOST["readable"], os.O_RDONLY | os.O_TRUNC))
    return "truncated"


@attack
def mode_of_a_file():
    os.chmod(outside("canary"), 0o777)
    return "changed"


@attack
def mode_of_a_file_that_may_be_read():
    os.fchmod(os.open(HOST["readable"], os.O_RDONLY), 0o666)
    return "changed"


@attack
def programs_that_become_their_owner():
    descriptor = os.open("own", os.O_WRONLY | os.O_CREAT, 0o755)
    os.fchmod(descriptor, 0o6755)
    if not os.fstat(descriptor).st_mode & 0o6000:
        return None
    return "made a program that runs as its owner"


@attack
def programs_that_become_their_group():
    for act in (lambda: os.chmod("own", 0o2755), lambda: os.open("grouped", os.O_WRONLY | os.O_CREAT, 0o2755)):
        try:
            act()
        except PermissionError:
            continue
        return "made a program that runs as its group"
    return None


@attack
def snapshots_of_file_systems():
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    for number in (0x50009401, 0x5000940E, 0x4008941A, 0x4010BC10):
        try:
            fcntl.ioctl(here, number, bytes(4096)[:1000])
        except PermissionError:
            continue
        except OSError as error:
            return f"the file system was asked: {error}"
    try:
        fcntl.ioctl(here, 0x40049409, here)
    except PermissionError:
        return "but files cannot be copied"
    except OSError:
        return None


@attack
def owner_of_a_file():
    os.chown(outside("canary"), -1, os.getgid())
    return "changed"


@attack
def times_of_a_file():
    os.utime(outside("canary"), (1, 1))
    return "changed"


@attack
def attributes_of_a_file():
    os.setxattr(outside("canary"), "user.treadle", b"x")
    return "changed"


@attack
def rights_of_a_file():
    access = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", *one) for one in ((1, 6, 2**32 - 1), (4, 6, 2**32 - 1), (32, 6, 2**32 - 1))
    )
    os.setxattr(outside("canary"), "system.posix_acl_access", access)
    return "changed"


@attack
def flags_of_a_file():
    descriptor = os.open(HOST["readable"], os.O_RDONLY)
    found = fcntl.ioctl(descriptor, 0x80086601, struct.pack("l", 0))
    fcntl.ioctl(descriptor, 0x40086602, struct.pack("l", struct.unpack("l", found)[0] | 0x80))
    return "changed"


@attack
def links_out():
    for source in (outside("canary"), HOST["readable"]):
        try:
            os.link(source, "hard")
            return f"linked {source}"
        except OSError:
            continue
    return None


@attack
def links_to_outside():
    open("made", "w").close()
    os.link("made", outside("made"))
    return "linked"


@attack
def renaming_to_outside():
    open("moved", "w").close()
    os.rename("moved", outside("moved"))
    return "renamed"


@attack
def renaming_from_outside():
    os.rename(outside("canary"), "taken")
    return "renamed"


@attack
def exchanging_with_outside():
    open("swapped", "w").close()
    return done(LIBC.renameat2(-100, b"swapped", -100, outside("canary").encode(), 2), "exchanged")


@attack
def watching_a_folder():
    return done(LIBC.inotify_add_watch(LIBC.inotify_init(), HOST["outside"].encode(), 0xFFF), "watches")


@attack
def a_lock_that_stays():
    descriptor = os.open(outside("canary"), os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return "locked"


@attack
def programs_without_a_file():
    """A program in memory is no way out: it has what its maker has."""
    descriptor = os.memfd_create("program")
    with open("/bin/cat", "rb") as file:
        os.write(descriptor, file.read())
    found = subprocess.run(
        ["cat", outside("canary")],
        executable=f"/proc/self/fd/{descriptor}",
        pass_fds=[descriptor],
        capture_output=True,
        check=False,
    )
    return (found.stdout and f"read {found.stdout!r}") or None


@attack
def calls_of_another_architecture():
    """Calls by the numbers of 32 bits: `int 0x80` with 20, getpid, in machine code."""
    import mmap

    if not X86:
        return
    code = bytes.fromhex("b814000000cd80c3")
    with mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as place:
        place.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(place))
        found = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os.write(HOST["report"], json.dumps(f"ran, and got {found}").encode())
        os._exit(0)


def outcome(name):
    given, taken = os.pipe()
    child = os.fork()
    if child == 0:
        HOST["report"] = taken
        HOST["own"] = [given, taken, *HOST["own"]]
        signal.alarm(SECONDS)
        try:
            reached = ATTACKS[name]()
        except OSError as error:
            reached = None
            sys.stderr.write(f"{name}: {error}\n")
        os.write(taken, json.dumps(str(reached) if reached else None).encode())
        os._exit(0)
    os.close(taken)
    with os.fdopen(given, "rb") as file:
        written = file.read()
    os.waitpid(child, 0)
    return json.loads(written) if written else None


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        HOST.update(json.load(file))
    HOST["own"] = []
    sys.stdout.write(json.dumps({name: outcome(name) for name in ATTACKS}))


if __name__ == "__main__":
    main()
