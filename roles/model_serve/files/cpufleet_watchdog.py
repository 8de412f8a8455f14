#!/bin/sh
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
""":"
# Python takes these lines for a text. sh runs them: some distributions have a Python 3 and no command python3.
for python in python3 /usr/libexec/platform-python python3.13 python3.12 python3.11 python3.9 python3.8 python3.6; do
  if command -v "$python" > /dev/null 2>&1; then exec "$python" -I "$0" "$@"; fi
done
echo "cpufleet-watchdog: found no Python 3 on this host; name one: /path/to/python3 $0" >&2
exit 3
":"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

USAGE = """usage: cpufleet-watchdog --unit NAME.service [--state DIR] [--doctor FILE] [--grace S] [--interval S]
       [--window S] [--stopped S] [--ask S] [--pause S] [--patience S]

Watch a vLLM or llama-server and restart it when its engine hangs, which systemd cannot see. Runs as root until ended.
An idle engine is asked for one token every --ask seconds; one that has work is judged by the processor time of the
processes that compute, and by its token counters. What it wants to restart it first shows to cpufleet-doctor, which
saves the state below --state and has to agree."""
TICKS = os.sysconf("SC_CLK_TCK")
BUSY_REST = 0.2  # of one CPU: the server reads a prompt, or compiles a grammar for the answer
IDLE_CPU = 0.02  # of one CPU: an engine that has a request and does less than this does nothing
GAP = 4  # intervals: after a longer one the machine itself was stopped, and what lies before says nothing
KEPT_SNAPSHOTS = 3
FORGET_S = 6 * 3600.0  # restarts that are older do not delay the next
LONGEST_PAUSE_S = 3600.0
DOUBT_S = 60.0  # the doctor did not agree: so long it is not asked again
DOCTOR_S = 180.0
LEARNT = 65536
OK, BROKEN = 200, 500


class Rules(NamedTuple):
    """How long everything may take, in seconds."""

    grace: float = 600.0  # until a server that was started has to answer
    interval: float = 5.0  # between two looks
    window: float = 20.0  # without processor time, with work: frozen
    stopped: float = 10.0  # a process that somebody stopped
    patience: float = 300.0  # in place of the window, while other parts of the server compute
    ask: float = 30.0  # an engine without work is asked for a token so often
    pause: float = 300.0  # after a restart; three times as long after each further one


class Sample(NamedTuple):
    """One look at the server."""

    at: float
    start: str  # names one start of the server
    age: float  # seconds since then
    ready: bool  # it has answered since then
    stopped: Tuple[int, ...]  # processes that a signal stopped
    cpu: float  # processor seconds of the processes that compute
    waits: bool  # a thread of theirs waits for a processor or for the disk, or somebody debugs them
    rest: float = 0.0  # processor seconds of the other processes
    tokens: Optional[float] = None  # all tokens so far, where they were read
    requests: float = 0.0  # that run or wait, as the counters say
    late: float = 0.0  # seconds that a token is waited for
    status: int = -1  # of the last answer; 0 when the connection failed, -1 when it was not asked


# --- the verdict: pure, samples in, verdict out ---------------------------------------------------------------------

ACTED_ON = ("stopped", "frozen", "broken")


def judge(samples: Sequence[Sample], rules: Rules) -> Tuple[str, str]:
    """Return the verdict over ``samples`` (oldest first) and what was seen.

    ``stopped``, ``frozen`` and ``broken`` want a restart; ``starting``, ``idle``, ``working``, ``prefill`` and
    ``unclear`` do not.
    """
    recent = last_start(samples, rules)
    if not recent:
        return "unclear", "nothing seen yet"
    last = recent[-1]
    if not last.ready and last.age < rules.grace:
        return "starting", f"up for {last.age:.0f} s"
    stopped = trailing(recent, lambda _before, sample: bool(sample.stopped))
    if last.stopped and last.at - stopped.at >= rules.stopped:
        pids = ", ".join(map(str, last.stopped))
        return "stopped", f"pid {pids} stopped for {last.at - stopped.at:.0f} s"
    frozen = trailing(recent, lambda before, sample: still(before, sample) and has_work(sample))
    if last.at - frozen.at >= (rules.patience if rest_is_busy(frozen, last) else rules.window):
        return "frozen", f"{described(last)}, no processor time and no token for {last.at - frozen.at:.0f} s"
    broken = trailing(recent, lambda before, sample: still(before, sample) and fails(sample))
    if last.at - broken.at >= rules.window:
        return "broken", f"answers with {last.status or 'no HTTP'} for {last.at - broken.at:.0f} s"
    return harmless(recent)


def harmless(recent: Sequence[Sample]) -> Tuple[str, str]:
    """Return the verdict over samples that call for nothing."""
    last = recent[-1]
    if len(recent) == 1:
        return "unclear", "seen once"
    if still(recent[-2], last):
        return ("unclear", described(last)) if has_work(last) or fails(last) or last.stopped else ("idle", "")
    waited = (last.requests or last.late) and not moved(recent[-2], last)
    return ("prefill" if waited else "working"), described(last)


def last_start(samples: Sequence[Sample], rules: Rules) -> List[Sample]:
    """Return the samples of the last start without a hole between them."""
    found: List[Sample] = []
    for sample in reversed(samples):
        if found and (sample.start != found[-1].start or found[-1].at - sample.at > GAP * rules.interval):
            break
        found.append(sample)
    return found[::-1]


def trailing(samples: Sequence[Sample], holds: Callable[[Sample, Sample], bool]) -> Sample:
    """Return the sample since which ``holds(before, sample)`` is true of every one; the last where it is not."""
    first = samples[-1]
    for before, sample in zip(reversed(samples[:-1]), reversed(samples)):
        if not holds(before, sample):
            break
        first = before
    return first


def still(before: Sample, sample: Sample) -> bool:
    """Tell whether nothing was computed between two looks, and not for want of a processor, memory or disk."""
    share = (sample.cpu - before.cpu) / max(0.01, sample.at - before.at)
    return share < IDLE_CPU and not sample.waits and not moved(before, sample)


def rest_is_busy(before: Sample, sample: Sample) -> bool:
    """Tell whether what does not compute answers did something between two looks; an engine may also spin in vain."""
    return sample.rest - before.rest >= BUSY_REST * (sample.at - before.at) > 0


def moved(before: Sample, sample: Sample) -> bool:
    """Tell whether tokens were made between two looks."""
    return before.tokens is not None and sample.tokens is not None and sample.tokens > before.tokens


def has_work(sample: Sample) -> bool:
    """Tell whether something is waited for: a request, a token, or the end of a start that takes too long."""
    return bool(sample.requests or sample.late) or not sample.ready


def fails(sample: Sample) -> bool:
    """Tell whether the server answers that it is broken, or not at all."""
    return sample.status == 0 or sample.status >= BROKEN


def described(sample: Sample) -> str:
    """Say what is waited for."""
    if not sample.ready:
        return f"has not answered in {sample.age:.0f} s since its start"
    late = f"a token is waited for since {sample.late:.0f} s" if sample.late else ""
    return ", ".join(filter(None, [f"{sample.requests:.0f} requests", late]))


def held(restarts: Sequence[float], now: float, rules: Rules) -> float:
    """Return the seconds to hold off for, after earlier restarts at the times ``restarts``."""
    recent = [min(at, now) for at in restarts if now - at < FORGET_S]
    if not recent:
        return 0.0
    pause = min(LONGEST_PAUSE_S, rules.pause * 3.0 ** (len(recent) - 1))
    return max(0.0, max(recent) + pause - now)


def agrees(document: Dict[str, Any], unit: str) -> bool:
    """Tell whether the doctor, too, found that a restart helps."""
    own = [entry for entry in document["causes"] if entry.get("unit") == unit]
    return any(entry["verdict"] == "HUNG" or entry["code"] == "engine_dead" for entry in own)


# --- processes ------------------------------------------------------------------------------------------------------


def text_of(path: str) -> str:
    """Return the text of a file, empty where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def stat_of(path: str) -> List[str]:
    """Return the fields of a stat file from the state on, empty for a process that has ended."""
    return text_of(path).rpartition(")")[2].split()


def family(pid: int) -> List[int]:
    """Return ``pid`` and all that descend from it."""
    parents: Dict[int, int] = {}
    for name in os.listdir("/proc"):
        values = stat_of(f"/proc/{name}/stat") if name.isdigit() else []
        if values:
            parents[int(name)] = int(values[1])
    found = [pid]
    for parent in found:
        found += [child for child, above in parents.items() if above == parent]
    return found


def words_of(pid: int) -> List[str]:
    """Return the command line of a process."""
    return [word for word in text_of(f"/proc/{pid}/cmdline").split("\0") if word]


def computing(main: int, pids: Sequence[int]) -> List[int]:
    """Return the processes that compute: the workers, where there are none the engine, else the server itself."""
    own, workers, engines = words_of(main), [], []
    for pid in pids[1:]:
        words = words_of(pid) or [""]
        if words[0].startswith("VLLM::Worker"):
            workers.append(pid)
        elif words[0].startswith("VLLM::EngineCore") or words == own or any("spawn_main" in word for word in words):
            engines.append(pid)
    return workers or engines or [main]


def thread_states(pid: int) -> Set[str]:
    """Return the states of all threads of a process."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return set()
    return {"".join(stat_of(f"/proc/{pid}/task/{task}/stat")[:1]) for task in tasks}


def processor_time(pids: Sequence[int]) -> float:
    """Return the processor seconds that processes have used."""
    return sum(int(value) for pid in pids for value in stat_of(f"/proc/{pid}/stat")[11:13]) / TICKS


def option(words: Sequence[str], name: str) -> str:
    """Return the value of a command line's option in either spelling, empty where it is not given."""
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            return words[index + 1]
        if word.startswith(name + "="):
            return word[len(name) + 1 :]
    return ""


# --- asking ---------------------------------------------------------------------------------------------------------


class Server:
    """Where one start of the server is asked, and with which key."""

    def __init__(self, pid: int, files: Sequence[str]) -> None:
        words = words_of(pid)
        # In some containers not even root may read what a process was started with; the unit's files say the same.
        texts = [text_of(f"/proc/{pid}/environ").replace("\0", "\n"), *map(text_of, files)]
        pairs = (line.partition("=") for text in texts for line in text.splitlines())
        environment = {name: value.strip().strip("\"'") for name, _sign, value in pairs}
        llama = os.path.basename(words[0]) == "llama-server" if words else False
        host = option(words, "--host") or "127.0.0.1"
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(host, host)  # noqa: S104 - not bound to
        port = option(words, "--port") or environment.get("LLAMA_ARG_PORT", "")
        self.port = int(port) if port.isdigit() else 8080 if llama else 8000
        self.tls = bool(option(words, "--ssl-certfile") or option(words, "--ssl-cert-file"))
        self.model = option(words, "--served-model-name") or option(words, "--alias") or option(words, "--model")
        file = option(words, "--api-key-file")
        keys = [(text_of(file).split() or [""])[0] if file.startswith("/") else "", option(words, "--api-key")]
        keys += [environment.get("VLLM_API_KEY", ""), environment.get("LLAMA_API_KEY", "")]
        # Credentials that systemd hands to the service are shut to others; their source is not.
        roots = [path.partition("/deployments/")[0] for path in files if "/deployments/" in path]
        keys += [text_of(root + "/secrets/api_key").strip() for root in roots[:1]]
        self.key = next(filter(None, keys), "")

    def request(self, path: str, body: str = "") -> "Request":
        """Send a request."""
        head = [f"{'POST' if body else 'GET'} {path} HTTP/1.0", f"Host: {self.host}", "User-Agent: cpufleet-watchdog"]
        head += [f"Authorization: Bearer {self.key}"] if self.key else []
        head += ["Content-Type: application/json", f"Content-Length: {len(body.encode())}"] if body else []
        return Request(self, "\r\n".join([*head, "", body]).encode())

    def question(self) -> "Request":
        """Ask for one token."""
        body = {"model": self.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        return self.request("/v1/completions", json.dumps(body))


class Request:
    """One request on a connection of its own, which is looked at now and then and waited for only when told to."""

    def __init__(self, server: Server, text: bytes) -> None:
        self.began, self.answer, self.done = time.monotonic(), b"", False
        self.socket: Optional[socket.socket] = None
        try:
            self.socket = socket.create_connection((server.host, server.port), 2.0)
            if server.tls:
                import ssl  # noqa: PLC0415 - costs memory

                context = ssl.create_default_context()
                # This machine asks itself: whom the certificate names says nothing about the service's health.
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                self.socket = context.wrap_socket(self.socket)
            self.socket.sendall(text)
        except OSError:
            self.close()

    def look(self, seconds: float = 0.0) -> bool:
        """Take what has come, for at most ``seconds``; return whether the answer has ended."""
        end = time.monotonic() + seconds
        while self.socket and not self.done:
            try:
                self.socket.settimeout(max(0.0, end - time.monotonic()))
                piece = self.socket.recv(LEARNT)
            except (BlockingIOError, socket.timeout):
                return False
            except OSError as error:
                if type(error).__name__ == "SSLWantReadError":
                    return False
                piece = b""
            self.answer += piece
            if not piece:
                self.close()
        return self.done

    def close(self) -> None:
        """End it."""
        self.done = True
        if self.socket:
            self.socket.close()
            self.socket = None

    @property
    def status(self) -> int:
        """Return the HTTP status, 0 without one."""
        found = re.match(rb"HTTP/1\.\d (\d{3})", self.answer)
        return int(found.group(1)) if found else 0


GENERATED = ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total")
PROMPTED = ("vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total")
PRESENT = ("vllm:num_requests_running", "vllm:num_requests_waiting", "llamacpp:requests_processing")


def counters(page: str) -> Tuple[Optional[float], float]:
    """Return all tokens so far (None where the page does not tell) and the requests that run or wait."""
    tokens, requests = None, 0.0
    for name, value in re.findall(r"^([A-Za-z_:]+)(?:\{[^}]*\})?\s+(\d[0-9.eE+-]*)\s*$", page, re.MULTILINE):
        if name in GENERATED + PROMPTED:
            tokens = (tokens or 0.0) + float(value)
        elif name in (*PRESENT, "llamacpp:requests_deferred"):
            requests += float(value)
    return tokens, requests


# --- watching -------------------------------------------------------------------------------------------------------


class Options(NamedTuple):
    """The command line."""

    unit: str
    state: str
    doctor: str
    rules: Rules


class Watch:
    """Looks at one unit, and acts."""

    def __init__(self, options: Options) -> None:
        self.options, self.rules = options, options.rules
        self.samples: List[Sample] = []
        self.main, self.start = 0, ""
        self.told = ""
        self.doubt_until = 0.0

    def run(self) -> None:
        """Watch until ended."""
        while True:
            verdict, evidence = self.tick()
            if verdict in ACTED_ON and time.monotonic() >= self.doubt_until:
                self.act(verdict, evidence)
            elif verdict not in ("unclear", *ACTED_ON):
                self.tell("starting" if verdict == "starting" else "answers")
            time.sleep(self.rules.interval)

    def say(self, text: str) -> None:
        """Write a line to the journal."""
        sys.stdout.write(f"{self.options.unit}: {text}\n")
        sys.stdout.flush()

    def tell(self, state: str) -> None:
        """Say a state when it is another than before; what changes with every request is nothing to say."""
        if state != self.told:
            self.say(state)
        self.told = state

    def systemctl(self, *words: str) -> Tuple[int, str]:
        """Run systemctl and return status and output."""
        command = ["systemctl", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)  # noqa: S603
        return done.returncode, done.stdout.decode("utf-8", "replace").strip()

    def find(self) -> bool:
        """Tell whether the server runs; note its process, and begin anew where that is another one."""
        if not (self.main and self.start == self.start_of(self.main)):
            lines = [line.partition("=") for line in self.show().splitlines()]
            said = {name: value for name, _sign, value in lines}
            files = [value.rpartition(" (")[0] for name, _sign, value in lines if name == "EnvironmentFiles"]
            running = said.get("ActiveState") == "active" and said.get("MainPID", "0") != "0"
            self.main = int(said["MainPID"]) if running else 0
            self.start = self.start_of(self.main) if running else ""
            self.samples, self.question = [], None
            if self.start:
                self.server, self.ready, self.split = Server(self.main, files), False, False
                self.proof = time.monotonic()
        return bool(self.start)

    def show(self) -> str:
        """Return what systemd says of the unit."""
        return self.systemctl("show", self.options.unit, "--property=ActiveState,MainPID,EnvironmentFiles")[1]

    def start_of(self, pid: int) -> str:
        """Return a name for the start of a process, empty when it has ended."""
        values = stat_of(f"/proc/{pid}/stat")
        return f"{pid}-{values[19]}" if values and values[0] not in "ZX" else ""

    question: Optional[Request] = None
    ready = split = False
    proof = 0.0  # when the engine last showed that it works

    def tick(self) -> Tuple[str, str]:
        """Look once and return the verdict."""
        if not self.find():
            return "unclear", "it does not run"
        sample = self.look()
        before = self.samples[-1] if self.samples else sample
        if not still(before, sample):
            self.proof = sample.at
        sample = self.ask(before, sample)
        self.samples = [old for old in self.samples if sample.at - old.at < 60 + self.rules.patience] + [sample]
        return judge(self.samples, self.rules)

    def look(self) -> Sample:
        """Look at the processes."""
        pids = family(self.main)
        states = {pid: (stat_of(f"/proc/{pid}/stat") or ["X"])[0] for pid in pids}
        workers = computing(self.main, pids)
        self.split = self.split or workers != [self.main]
        if self.split and workers == [self.main]:
            workers = []  # the engine had processes of its own, and they are gone
        threads = {state for pid in workers for state in thread_states(pid)}
        up = float((text_of("/proc/uptime").split() or ["0"])[0])
        return Sample(
            at=time.monotonic(),
            start=self.start,
            age=up - int(self.start.partition("-")[2]) / TICKS,
            ready=self.ready,
            stopped=tuple(pid for pid, state in states.items() if state == "T"),
            cpu=processor_time(workers),
            rest=processor_time([pid for pid in pids if pid not in workers]),
            waits=bool(threads & {"R", "D"}) or "t" in states.values(),
        )

    def ask(self, before: Sample, sample: Sample) -> Sample:
        """Complete a sample by what the server says; a busy engine is left alone."""
        if not self.ready:
            self.ready = self.health() == OK
            return sample._replace(ready=self.ready)
        if sample.stopped:
            return sample
        status = self.answered()
        if not still(before, sample):
            late = sample.at - self.question.began if self.question else 0.0
            return sample._replace(late=late, status=status)
        if self.question is None and (fails(before) or sample.at - self.proof >= self.rules.ask):
            self.question = self.server.question()
            self.question.look(min(2.0, self.rules.interval))
            status = self.answered()
        late = time.monotonic() - self.question.began if self.question else 0.0
        if late or before.requests or not still(*self.pair(before)):
            tokens, requests = self.counters()
            sample = sample._replace(tokens=tokens, requests=requests)
        return sample._replace(late=late, status=status)

    def pair(self, before: Sample) -> Tuple[Sample, Sample]:
        """Return the two samples before this one."""
        return (self.samples[-2] if len(self.samples) > 1 else before), before

    def health(self) -> int:
        """Return the status of /health."""
        request = self.server.request("/health")
        request.look(2.0)
        request.close()
        return request.status

    def answered(self) -> int:
        """Return the status of the question when its answer has come, and take that for a proof; else -1."""
        if self.question is None or not self.question.look():
            return -1
        status, self.question = self.question.status, None
        # A refusal proves nothing of the engine, and asking again would not either.
        if 0 < status < BROKEN:
            self.proof = time.monotonic()
        return status

    def counters(self) -> Tuple[Optional[float], float]:
        """Return tokens and requests as /metrics tells them."""
        request = self.server.request("/metrics")
        request.look(2.0)
        request.close()
        return counters(request.answer.decode("utf-8", "replace")) if request.status == OK else (None, 0.0)

    # --- acting

    def act(self, verdict: str, evidence: str) -> None:
        """Have the doctor look, save the state, and restart; not too often."""
        restarts = self.restarts()
        pause = held(restarts, time.time(), self.rules)
        if pause:
            if self.told != "held":
                seen = f"HUNG ({verdict}: {evidence})"
                self.say(f"{seen}; restarted {len(restarts)} times already, so not before {pause:.0f} s")
            self.told = "held"
            return
        self.say(f"HUNG ({verdict}: {evidence}); asking the doctor")
        found = self.diagnose()
        if found is not None and not agrees(found, self.options.unit):
            self.say(f"the doctor does not agree, so it is not restarted: {found['line']}")
            self.samples, self.doubt_until = [], time.monotonic() + DOUBT_S
            return
        if self.start_of(self.main) != self.start:
            self.say("it was restarted meanwhile")
            return
        where = f"its state is in {found['snapshot']}" if found and "snapshot" in found else "its state was not saved"
        self.say(f"restarting it; {where}")
        self.remember([*restarts, time.time()])
        self.told = ""
        # What hangs has nothing to finish, and would be waited for until the unit's TimeoutStopSec.
        for words in (("kill", "--signal=SIGKILL"), ("reset-failed",), ("restart",)):
            status, said = self.systemctl(*words, self.options.unit)
            if status and words[0] == "restart":
                self.say(f"systemctl restart failed: {said}")

    def diagnose(self) -> Optional[Dict[str, Any]]:
        """Return what the doctor says, with the state saved; None where it says nothing."""
        folder = os.path.join(self.options.state, "snapshots")
        words = [self.options.doctor, "--json", "--unit", self.options.unit, "--snapshot", folder]
        try:
            done = subprocess.run(  # noqa: S603 - the doctor and a unit's name
                words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=DOCTOR_S, check=False
            )
            found: Dict[str, Any] = json.loads(done.stdout.decode("utf-8", "replace"))
            agrees(found, self.options.unit)
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
            self.say(f"the doctor said nothing: {type(error).__name__}: {error}")
            return None
        tidy(folder)
        return found

    def restarts(self) -> List[float]:
        """Return the times of the restarts that count."""
        try:
            found = json.loads(text_of(os.path.join(self.options.state, "restarts.json")))
            return [float(at) for at in found if time.time() - float(at) < FORGET_S]
        except (ValueError, TypeError):
            return []

    def remember(self, restarts: Sequence[float]) -> None:
        """Keep the times of the restarts: the unit's restart is this program's, too."""
        path = os.path.join(self.options.state, "restarts.json")
        os.makedirs(self.options.state, mode=0o700, exist_ok=True)
        with open(path + ".new", "w", encoding="ascii") as stream:
            json.dump(list(restarts), stream)
        os.replace(path + ".new", path)


def tidy(folder: str) -> None:
    """Remove all but the newest snapshots."""
    import shutil  # noqa: PLC0415 - costs memory, and is rarely needed

    paths = [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    for path in sorted(paths, key=os.path.getmtime)[:-KEPT_SNAPSHOTS]:
        shutil.rmtree(path, ignore_errors=True)


def parse(words: Sequence[str]) -> Options:
    """Return the parsed command line; end where it is wrong."""
    given = dict(zip(words[::2], words[1::2]))
    known = {"--unit", "--state", "--doctor", *("--" + name for name in Rules._fields)}
    unit = given.get("--unit", "")
    try:
        values = {name: float(given["--" + name]) for name in Rules._fields if "--" + name in given}
    except ValueError:
        values = {"interval": 0.0}
    if len(words) % 2 or set(given) - known or not unit or min(values.values(), default=1.0) <= 0:
        sys.stderr.write(USAGE + "\n")
        sys.exit(2)
    unit = unit if unit.endswith(".service") else unit + ".service"
    state = given.get("--state") or os.environ.get("STATE_DIRECTORY") or "/var/lib/cpufleet-watchdog"
    return Options(unit, state, given.get("--doctor", "/usr/local/bin/cpufleet-doctor"), Rules(**values))


if __name__ == "__main__":
    Watch(parse(sys.argv[1:])).run()
