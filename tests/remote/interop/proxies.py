"""Proxies between the command and a server: one with faults, one with the latency of a network."""
import asyncio
import collections
import contextlib
import random
import re
import threading

BUSY = b"HTTP/1.1 503 Slow Down\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CUT_HEADERS = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Le"
LATE_ERROR = (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"  # S3 may begin its answer before it knows the result
              b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>")
NO_RESULT = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"  # an answer that was cut before the result


@contextlib.contextmanager
def running(proxy):
    """Runs a proxy in a thread of its own. Yields its port."""
    loop, started, ports = asyncio.new_event_loop(), threading.Event(), []

    async def listen():
        server = await asyncio.start_server(proxy, "127.0.0.1", 0, limit=1 << 20)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()

    def work():
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda *_: None)  # the client closes connections, too
        loop.run_until_complete(listen())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    started.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def copy(reader, writer, size=None, rate=None):
    """Copies `size` bytes, or all, at `rate` bytes per second. Returns the number of bytes."""
    done = 0
    while size is None or done < size:
        data = await reader.read(1 << 16 if size is None else min(size - done, 1 << 16))
        if not data:
            break
        writer.write(data)
        await writer.drain()
        done += len(data)
        if rate:
            await asyncio.sleep(len(data) / rate)
    return done


class Faulty:
    """Forwards requests to a port, each over a connection of its own. A share of them gets a fault.

    busy         the answer is 503, to try again at once
    delay        the request is held for up to a second
    cut request  the connection ends while the server receives the body
    cut answer   the connection ends while the client receives the answer, maybe after no byte

    Requests whose first line matches `refuse` do not reach the server: each gets `answer`.
    """

    def __init__(self, port, share=0.0, seed=0, rate=None, refuse=None, answer=BUSY):
        self.port, self.share, self.rate, self.refuse, self.answer = port, share, rate, refuse, answer
        self.random = random.Random(seed)
        self.counts = collections.Counter()

    async def __call__(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self.request(reader, writer)
        writer.close()

    async def request(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
        size = int(length[1]) if length else 0
        fault = "none"
        if self.refuse and re.search(self.refuse, head.split(b"\r\n")[0]):
            fault = "refuse"
        elif self.random.random() < self.share:
            fault = self.random.choice(["busy", "delay", "cut request", "cut answer"])
        self.counts[fault] += 1
        if fault in ("busy", "refuse"):
            while size > 0 and (data := await reader.read(min(size, 1 << 16))):
                size -= len(data)
            writer.write(BUSY if fault == "busy" else self.answer)
            await writer.drain()
            return
        if fault == "delay":
            await asyncio.sleep(self.random.random())
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            server_writer.write(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            cut = self.random.randrange(size + 1) if fault == "cut request" else size
            if await copy(reader, server_writer, cut, self.rate) < size:
                return
            answer = self.random.choice([0, 20, 1000, 100_000, 1_000_000]) if fault == "cut answer" else None
            if answer == 0:
                await server_reader.read()  # the server has done what the client never learns
            else:
                await copy(server_reader, writer, answer, self.rate)
        finally:
            server_writer.close()


class Delayed:
    """Forwards bytes to a port. Each arrives `seconds` later in both directions, and so does a new connection."""

    def __init__(self, port, seconds):
        self.port, self.seconds = port, seconds

    async def __call__(self, reader, writer):
        await asyncio.sleep(2 * self.seconds)  # the handshake of TCP
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self.line(reader, server_writer), self.line(server_reader, writer))

    async def line(self, reader, writer):
        """Copies without a limit of the bytes on their way, as a long wire does."""
        loop = asyncio.get_running_loop()
        waiting, more = collections.deque(), asyncio.Event()

        async def send():
            while True:
                while not waiting:
                    more.clear()
                    await more.wait()
                at, data = waiting.popleft()
                if at > loop.time():
                    await asyncio.sleep(at - loop.time())
                if not data:
                    break
                writer.write(data)
                await writer.drain()

        sender = asyncio.create_task(send())
        with contextlib.suppress(OSError):
            data = b"more"
            while data and not sender.done():
                data = await reader.read(1 << 20)
                waiting.append((loop.time() + self.seconds, data))
                more.set()
            await sender
        sender.cancel()
        writer.close()
