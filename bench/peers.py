"""Measures Weir beside its peers on this machine.

  bench/peers --setup [PEER...]  creates the peers' virtual environments, with pinned versions
  bench/peers rounds             seconds, bytes, CPU and memory of exchange rounds
  bench/peers kills              kill -9 of each role: lost steps, seconds, and the same bits or not

The programs of the peers are in bench/peer. Each is written in the way that the peer's own
documentation shows. A peer that cannot be installed or fails has its reason in the table."""
import argparse
import os
import signal
import sys

import peers_env
import peers_watch


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", nargs="?", choices=("rounds", "kills"))
    p.add_argument("--setup", nargs="*", metavar="PEER",
                   help="create environments: %s (all)" % ", ".join(peers_env.PINS))
    p.add_argument("--cache", metavar="FOLDER", help="of the environments (build/peers)")
    p.add_argument("--scratch", metavar="FOLDER", help="of the runs' files (TMPDIR)")
    p.add_argument("--keep", action="store_true", help="keep the runs' files")
    p.add_argument("--kinds", metavar="LIST", help="systems to measure (all)")
    p.add_argument("--limit", type=int, default=600, metavar="S", help="of one run (600)")
    p.add_argument("--json", metavar="FILE", help="also write the figures here")
    rounds = p.add_argument_group("rounds")
    rounds.add_argument("--size", default="124m", help="124m, 16m or tiny (124m)")
    rounds.add_argument("--dtypes", default="fp32,bf16", metavar="LIST", help="(fp32,bf16)")
    rounds.add_argument("--clients", default="1,2,4", metavar="LIST", help="(1,2,4)")
    rounds.add_argument("--rounds", type=int, default=6, metavar="N", help="of a run (6)")
    rounds.add_argument("--turns", type=int, default=3, metavar="N",
                        help="runs of each system, in alternating order (3)")
    kills = p.add_argument_group("kills")
    kills.add_argument("--kills", type=int, default=20, metavar="N", help="of a role (20)")
    kills.add_argument("--kills_a_run", type=int, default=5, metavar="N",
                       help="kills of a run, one after the other (5)")
    kills.add_argument("--seed", type=int, default=1, metavar="N", help="of the moments (1)")
    kills.add_argument("--patience", type=int, default=60, metavar="S",
                       help="time for a new step after a kill (60)")
    kills.add_argument("--give_up", type=int, default=3, metavar="N",
                       help="a row ends if training moves after none of its first N kills (3)")
    kills.add_argument("--roles", metavar="LIST", help="programs to kill, by their names (all)")
    return p.parse_args()


def main():
    args = parse()
    if args.setup is not None:
        peers_env.setup(args.cache, args.setup)
        return
    if args.what is None:
        sys.exit("bench: which table, rounds or kills?")
    peers_watch.in_namespace([sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs then end their processes
    if args.scratch:
        os.makedirs(args.scratch, exist_ok=True)
    if args.what == "rounds":
        import peers_rounds as table
    else:
        import peers_kills as table
    args.kinds = args.kinds or ",".join(table.KINDS)
    table.measure(args)


if __name__ == "__main__":
    main()
