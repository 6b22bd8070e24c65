"""A TCP proxy that holds back what a client sends: a server far away, or, when it is ended, one that is down.

python -m benchmarks.slow_proxy --listen 5001 --to 5000 --delay 0.1
"""

import argparse
import asyncio


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """Pass on what comes, each piece after the delay, until either side hangs up."""
    try:
        while data := await reader.read(1 << 16):
            await asyncio.sleep(delay)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(listen: int, to: int, delay: float) -> None:
    """Take connections on one local port and pass them on to another, for ever."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pipe(reader, far_writer, delay), pipe(far_reader, writer, 0.0))

    server = await asyncio.start_server(connect, "127.0.0.1", listen)
    print(f"listening on {listen}", flush=True)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=int, required=True, help="local port to take connections on")
    parser.add_argument("--to", type=int, required=True, help="local port of the server")
    parser.add_argument("--delay", type=float, default=0.1, help="seconds by which each request is late")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.listen, arguments.to, arguments.delay))


if __name__ == "__main__":
    main()
