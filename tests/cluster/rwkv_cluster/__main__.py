"""Command line: `python -m rwkv_cluster up | down | status | load-image | kubeconfig | …`."""

import argparse
import os
import sys

from rwkv_cluster import build, errors, layout, modes
from rwkv_cluster.apiserver import ApiServer
from rwkv_cluster.modes import Cluster
from rwkv_cluster.progress import Progress

EXIT_FAILED = 1
EXIT_NO_CLUSTER = 3


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="rwkv_cluster", description=__doc__)
    parser.add_argument("--name", default=layout.DEFAULT_NAME, help="name of the cluster")
    parser.add_argument(
        "--mode",
        default=os.environ.get("CLUSTER", ""),
        help=f"{', '.join(modes.MODES)}; default: $CLUSTER, else kind where it works, else local",
    )
    parser.add_argument(
        "--context",
        default=os.environ.get("CLUSTER_CONTEXT", ""),
        help="kubeconfig context that --mode current may change",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring the cluster up; harmless when it is up")
    up.add_argument("--nodes", type=int, default=1, help="how many nodes at least")
    down = commands.add_parser("down", help="remove the cluster and every trace of it")
    down.add_argument(
        "--images", action="store_true", help="also the images and logs kept in the cache folder"
    )
    commands.add_parser("status", help="say what runs; exit 3 when there is no cluster")
    load = commands.add_parser("load-image", help="copy images of buildah's store into the nodes")
    load.add_argument("image", nargs="+")
    commands.add_parser("kubeconfig", help="print the path of the admin's kubeconfig")
    build_ = commands.add_parser("build", help="build binaries; all when none is named")
    build_.add_argument("program", nargs="*")
    bin_ = commands.add_parser("bin", help="print the path of a program, built when missing")
    bin_.add_argument("program")
    commands.add_parser("apiserver", help="run an API server without nodes until interrupted")
    return parser


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Carry out a command; return the exit status."""
    if args.command == "build":
        print(build.ensure(args.program or build.ALL, progress))
        return 0
    if args.command == "bin":
        print(build.binary(args.program, progress))
        return 0
    if args.command == "apiserver":
        return _run_apiserver(progress)
    return _run_cluster(args, modes.create(args.mode, args.name, args.context, progress))


def _run_cluster(args: argparse.Namespace, cluster: Cluster) -> int:
    if args.command == "up":
        cluster.up(args.nodes)
        print(f"export KUBECONFIG={cluster.kubeconfig}")
    elif args.command == "down":
        cluster.down(forget=args.images)
    elif args.command == "load-image":
        for image in args.image:
            cluster.load_image(image)
    elif args.command == "status":
        lines = cluster.status()
        print("\n".join(lines) or f"no cluster named {args.name}")
        return 0 if lines else EXIT_NO_CLUSTER
    else:
        if not cluster.kubeconfig.exists():
            print(f"no cluster named {args.name}: run `up` first", file=sys.stderr)
            return EXIT_NO_CLUSTER
        print(cluster.kubeconfig)
    return 0


def _run_apiserver(progress: Progress) -> int:
    with ApiServer(controllers=True, progress=progress) as server:
        print(f"export KUBECONFIG={server.kubeconfig}", flush=True)
        try:
            sys.stdin.read()
        except KeyboardInterrupt:
            pass
    return 0


def main() -> int:
    """Entry point; known errors become one line."""
    args = build_parser().parse_args()
    try:
        return run(args, Progress())
    except errors.ClusterError as failure:
        print(f"rwkv_cluster: {failure}", file=sys.stderr)
        if args.command == "up":
            print("rwkv_cluster: what was started stays; try `up` again or `down`", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
