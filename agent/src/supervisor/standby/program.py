# Program of a standby process: imports modules, waits for the values of a rank, and becomes that rank.
#
# The interpreter executes it by `-c` with the name `link`: the socket to the supervisor on file descriptor 0. It runs
# on Python 3.8 and later, with the standard library only. The script or module then runs in `__main__` as in a plain
# start; the frames of this program are below those of the script, and removed from its tracebacks.
import importlib
import importlib.util
import json
import os
import socket
import sys

# Devices that every process may hold.
PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")


def receive():
    """Returns the next message and its file descriptors; ends the process once the supervisor is gone."""
    room = socket.CMSG_SPACE(64)
    data, notes, _, _ = link.recvmsg(1 << 16, room, socket.MSG_CMSG_CLOEXEC)
    if not data:
        os._exit(0)
    files = []
    for level, kind, payload in notes:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            parts = (payload[at : at + 4] for at in range(0, len(payload) // 4 * 4, 4))
            files.extend(int.from_bytes(part, sys.byteorder) for part in parts)
    return json.loads(data), files


def text_of(value):
    """Decodes a word of the command as the interpreter decodes its own."""
    return os.fsdecode(value.encode("utf-8"))


def import_folder(target):
    """Returns the first entry of the import path in a plain start."""
    if "module" in target:
        return os.getcwd()
    path = os.path.realpath(text_of(target["script"]))
    return path if os.path.isdir(path) else os.path.dirname(path)


def set_first_path(old, new):
    """Replaces the first entry of the import path, behind those that imports put before it."""
    global first_path
    if old in sys.path:
        sys.path[sys.path.index(old)] = new
    first_path = new


def is_path_safe():
    return bool(getattr(sys.flags, "safe_path", False) or sys.flags.isolated)


def held_files(known):
    """Returns the devices and sockets that the imports opened, by name."""
    held = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        device = path[len("/dev/") :] if path.startswith("/dev/") else "null"
        is_device = device not in PLAIN_DEVICES and not device.startswith(("shm/", "pts/"))
        is_socket = path.startswith("socket:") and path not in known
        if is_device or is_socket:
            held.append(path)
    return held


def prepare(target, imports):
    """Imports the modules; returns the problem that excludes this process as a rank, if there is one."""
    own_sockets = {os.readlink(f"/proc/self/fd/{link.fileno()}")}
    if not is_path_safe():
        set_first_path("", import_folder(target))
    for name in imports:
        if name == "torch" and importlib.util.find_spec(name) is None:
            continue
        importlib.import_module(name)
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if hasattr(cuda, "is_initialized") and cuda.is_initialized():
        return "an import initialised CUDA"
    held = held_files(own_sockets)
    return "an import opened " + ", ".join(held) if held else None


def replace_output(number, new):
    """Replaces an output stream; what the imports wrote comes first, as in a plain start."""
    try:
        size = os.fstat(number).st_size
        at = 0
        while at < size:
            chunk = os.pread(number, 1 << 16, at)
            if not chunk:
                break
            os.write(new, chunk)
            at += len(chunk)
    except OSError:
        pass
    os.dup2(new, number)
    os.close(new)


def take_place(request, files):
    """Sets environment, output and command of the rank."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    replace_output(1, files[1])
    replace_output(2, files[2])
    for name, value in request["environment"].items():
        os.environb[name.encode("utf-8")] = value.encode("utf-8")
    target = request["target"]
    words = [text_of(word) for word in request["arguments"]]
    sys.argv = ["-m" if "module" in target else text_of(target["script"]), *words]
    if hasattr(sys, "orig_argv"):
        # A wrapper may have replaced the name of the interpreter.
        sys.orig_argv = [sys.orig_argv[0], *(text_of(word) for word in request["command"][1:])]
    if not is_path_safe():
        # A link in the script's path may lead elsewhere by now.
        set_first_path(first_path, import_folder(target))
    importlib.invalidate_caches()
    return target


def main_path(script):
    """Returns the script's path as the interpreter makes it absolute."""
    if sys.version_info < (3, 9) or os.path.isabs(script):
        return script
    return os.getcwd() + os.sep + script


def main_names(*unset):
    """Returns the names of `__main__`, without those of a start by `-c` and the given ones."""
    names = vars(sys.modules["__main__"])
    for name in ("link", *unset):
        names.pop(name, None)
    return names


def run_script(script):
    path = main_path(script)
    names = main_names()
    if os.path.isdir(path) or is_archive(path):
        import runpy

        if is_path_safe():
            sys.path.insert(0, path)
        runpy._run_module_as_main("__main__", alter_argv=False)
        return
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as problem:
        name = getattr(sys, "orig_argv", [sys.executable])[0]
        print(f"{name}: can't open file {path!r}: [Errno {problem.errno}] {problem.strerror}", file=sys.stderr)
        sys.exit(2)
    from importlib.machinery import SourceFileLoader

    names["__loader__"] = SourceFileLoader("__main__", path)
    names["__file__"] = path
    names["__cached__"] = None
    exec(compile(source, path, "exec", dont_inherit=True), names)
    main_names("__file__", "__cached__")


def is_archive(path):
    import zipfile

    return os.path.isfile(path) and zipfile.is_zipfile(path)


def run_module(module):
    import runpy

    main_names()
    runpy._run_module_as_main(module, alter_argv=True)


def run(target):
    """Runs the program of the rank; an exception leaves with a traceback that begins at the program."""
    try:
        if "module" in target:
            run_module(text_of(target["module"]))
        else:
            run_script(text_of(target["script"]))
    except SystemExit:
        # The interpreter exits with its code, and displays nothing.
        raise
    except BaseException:
        cut_traceback("script" in target)
        raise


def cut_traceback(is_script):
    """Lets the hook that displays an unhandled exception begin behind the frames of this program."""
    shown = sys.excepthook
    own = globals()

    def hook(kind, value, trace):
        sys.excepthook = shown
        # The first frame is that of the option -c.
        trace = trace.tb_next
        while trace is not None and trace.tb_frame.f_globals is own:
            trace = trace.tb_next
        value.__traceback__ = trace
        sys.last_traceback = trace
        try:
            shown(kind, value, trace)
        finally:
            if is_script:
                main_names("__file__", "__cached__")

    sys.excepthook = hook


def wait():
    """Prepares, reports, and waits for the rank; returns its program. Nothing but a rank leaves this function."""
    global link
    try:
        first = link
        link = socket.socket(fileno=os.dup(0))
        first.detach()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        plan, _ = receive()
        problem = prepare(plan["target"], plan["imports"])
        if problem is not None:
            link.send(json.dumps({"Failed": {"problem": problem}}).encode())
            os._exit(1)
        threads = len(os.listdir("/proc/self/task"))
        link.send(json.dumps({"Ready": {"pid": os.getpid(), "threads": threads}}).encode())
        request, files = receive()
        with os.fdopen(files[0], "rb") as file:
            file.seek(0)
            request = json.loads(file.read())
        link.send(b'"Taken"')
        link.close()
        return take_place(request, files)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


run(wait())
