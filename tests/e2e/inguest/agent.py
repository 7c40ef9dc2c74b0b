"""Agent of the suites in a guest: it runs their requests, which come over a virtio-serial port.

A request is a line of JSON with an `id`, its answer one with the same. Each request has a thread, so that a slow
command does not block others. Output of a command goes to files, so that processes that it leaves in the background
block no answer.
"""

import base64
import json
import os
import signal
import subprocess
import threading
import time

PORT = "shunt.agent"
LONGEST = 8 << 20  # maximum bytes of output in an answer, the last ones

commands = {}
ready = threading.Lock()


def open_port():
    """The port of the name, which may appear a moment after its driver."""
    base = "/sys/class/virtio-ports"
    while True:
        for device in os.listdir(base) if os.path.isdir(base) else []:
            with open(f"{base}/{device}/name", encoding="ascii") as file:
                if file.read().strip() == PORT and os.path.exists(f"/dev/{device}"):
                    return os.open(f"/dev/{device}", os.O_RDWR)
        time.sleep(0.01)


class Command:
    """A command with what it has printed so far."""

    def __init__(self, request):
        self.out, self.err, given = (os.fdopen(os.memfd_create("agent"), "r+b") for _ in range(3))
        given.write(request.get("given", "").encode())
        given.seek(0)
        self.process = subprocess.Popen(
            request["argv"], stdin=given, stdout=self.out, stderr=self.err, start_new_session=True
        )
        given.close()

    def said(self):
        """Output so far."""
        return {"out": text(self.out), "err": text(self.err)}

    def kill(self, number):
        """A signal to it and to all that it has started."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def wait(self, timeout):
        """Its end, or a violent one after `timeout` seconds."""
        late = False
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            late = True
            self.kill(signal.SIGKILL)
            self.process.wait()
        return {"status": self.process.returncode, "late": late, **self.said()}

    def close(self):
        """Its files go."""
        self.out.close()
        self.err.close()


def text(file):
    """The end of a file that another process writes, without moving where that writes next."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), LONGEST, max(0, size - LONGEST)).decode("utf-8", "replace")


def run(request):
    """Runs a command to its end."""
    try:
        command = Command(request)
    except OSError as error:
        return {"status": 127, "late": False, "out": "", "err": f"{request['argv'][0]}: {error}"}
    commands[request["id"]] = command
    try:
        return command.wait(request.get("limit"))
    finally:
        del commands[request["id"]]
        command.close()


def peek(request):
    """Output so far of a running command."""
    command = commands.get(request["of"])
    return command.said() if command else {}


def kill(request):
    """A signal for a command that runs."""
    command = commands.get(request["of"])
    if command:
        command.kill(request["signal"])
    return {}


def put(request):
    """Writes a file, or adds to one."""
    os.makedirs(os.path.dirname(request["path"]), exist_ok=True)
    with open(request["path"], "ab" if request["more"] else "wb") as file:
        file.write(base64.b64decode(request["data"]))
    os.chmod(request["path"], request["mode"])
    return {}


def get(request):
    """Reads a piece of a file."""
    with open(request["path"], "rb") as file:
        file.seek(request["offset"])
        return {"data": base64.b64encode(file.read(request["bytes"])).decode()}


def serve(request, answer):
    """Carries out one request, and answers whatever comes of it."""
    try:
        said = {"run": run, "peek": peek, "kill": kill, "put": put, "get": get}[request["do"]](request)
    except Exception as error:  # the suites must hear of it, whatever it is
        said = {"error": repr(error)}
    answer({"id": request["id"], **said})


def main():
    port = open_port()

    def answer(message):
        data = json.dumps(message).encode() + b"\n"
        with ready:
            while data:
                data = data[os.write(port, data):]

    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        answer({"hello": file.read().strip()})
    held = b""
    while True:
        data = os.read(port, 1 << 16)
        if not data:  # the other end is closed at present
            held = b""
            time.sleep(0.02)
            continue
        *lines, held = (held + data).split(b"\n")
        for line in lines:
            threading.Thread(target=serve, args=(json.loads(line), answer), daemon=True).start()


main()
