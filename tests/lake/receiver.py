"""A receiver of OpenTelemetry's protocol over HTTP, on a free port that it prints: each request is decoded by the protocol's own
protobuf and printed as a line of JSON. Requests that it cannot decode are refused."""
import http.server
import json
import sys

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse

KINDS = {"/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse), "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse)}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked, answer = KINDS[self.path]
        assert self.headers["Content-Type"] == "application/x-protobuf", self.headers
        request = asked()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        print(json.dumps({"path": self.path, "request": MessageToDict(request)}), flush=True)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(answer().SerializeToString())

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
print(json.dumps({"port": server.server_port}), flush=True)
server.serve_forever()
