#!/usr/bin/python3
"""Programs of two versions in one job: a worker, server or weirctl that is refused exits with one
line that names both protocol versions."""
# label: cluster
from concurrent import futures

import harness
import test_wire

if not test_wire.WHY_NOT:
    import grpc
MIX = "the caller speaks protocol %d, this server protocol %d; run the same version"
OTHERS = (1, harness.PROTOCOL + 1)


class Versions(test_wire.Client):
    def test_clients_of_other_versions_refused(self):
        """An older and a newer worker and server call our server."""
        pb, job = self.pb, self.job(n_workers=1)
        ps = job.start_ps(0)
        with grpc.insecure_channel(job.ps_hosts[0]) as channel:
            stub = self.pb_grpc.WeirStub(channel)
            for other in OTHERS:
                reply = stub.Join(pb.JoinRequest(protocol=other, incarnation=7),
                                  timeout=10 * harness.SLOWNESS)
                self.assertEqual(reply.answer, pb.JoinReply.REFUSED)
                self.assertIn(MIX % (other, harness.PROTOCOL), reply.why)
                with self.assertRaises(grpc.RpcError) as caught:
                    stub.Coordinate(pb.CoordinateRequest(protocol=other, server=1, n_servers=2,
                                                         incarnation=7),
                                    timeout=10 * harness.SLOWNESS)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn(MIX % (other, harness.PROTOCOL), caught.exception.details())
        for other in OTHERS:
            ps.wait_line("join from .* refused: " + MIX % (other, harness.PROTOCOL))
            ps.wait_line("Coordinate from .* refused: " + MIX % (other, harness.PROTOCOL))
        ps.stop()

    def other_server(self, other):
        """Starts a server of another version as ps:0; returns its address."""
        pb, text = self.pb, MIX % (harness.PROTOCOL, other)

        class Servicer(self.pb_grpc.WeirServicer):
            def Join(self, request, context):
                return pb.JoinReply(answer=pb.JoinReply.REFUSED, why=text, step=-1)

            def refuse(self, request, context):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
            Coordinate = Status = Command = refuse
        server = grpc.server(futures.ThreadPoolExecutor(2))
        self.pb_grpc.add_WeirServicer_to_server(Servicer(), server)
        port = server.add_insecure_port(harness.LOOPBACK + ":0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        return "%s:%d" % (harness.LOOPBACK, port)

    def ends(self, process, status, who):
        process.wait(60, status)
        lines = [line for line in process.output().splitlines() if " protocol " in line]
        self.assertEqual(len(lines), 1, process.output())
        self.assertRegex(lines[0], who)

    def test_servers_of_other_versions_refused(self):
        """Our worker, server and weirctl call an older and a newer ps 0."""
        for other in OTHERS:
            text = MIX % (harness.PROTOCOL, other)
            job = self.job(n_ps=2, n_workers=1)
            job.ps_hosts[0] = self.other_server(other)
            worker = job.start_worker(0)
            self.ends(worker, 1, "refused this worker: " + text)
            ps = job.start_ps(1)
            self.ends(ps, 1, "rejects this server's call: " + text)
            ctl = self.start_program("weirctl", "--ps_hosts=" + job.ps_hosts[0], "status")
            self.ends(ctl, 1, text)


harness.main(__name__)
