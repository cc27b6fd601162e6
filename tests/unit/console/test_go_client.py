"""A client in Go, generated from schemas/openapi.json, reads brokers and drains one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lb_stream.console.auth.users import user_lines
from lb_stream.console.auth.visitor import Access
from lb_stream.console.serve import ConsoleServer
from lb_stream.console.sources.reader import Reader
from lb_stream.contracts.schemas import FOLDER
from lb_stream.store import Store
from tests.unit.console.site import BROKER, PASSWORD, Topic, fleet, settings_of

GENERATOR = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
PROGRAM = """\
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
)

func main() {
	ctx, url := context.Background(), os.Args[1]
	client, err := NewClientWithResponses(url)
	check(err)
	// the hottest broker
	listed, err := client.GetBrokersWithResponse(ctx, &GetBrokersParams{Cluster: "eu-1"})
	check(err)
	broker := *listed.JSON200.Rows[0].Broker
	// without a login, and after one
	drain := PostSendDrainJSONRequestBody{Cluster: "eu-1", Broker: broker}
	refused, err := client.PostSendDrainWithResponse(ctx, drain)
	check(err)
	login := PostSessionJSONRequestBody{Name: "alice", Password: &os.Args[2]}
	session, err := client.PostSessionWithResponse(ctx, login)
	check(err)
	token := func(ctx context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+*session.JSON201.Token)
		return nil
	}
	sent, err := client.PostSendDrainWithResponse(ctx, drain, token)
	check(err)
	fmt.Println(broker, refused.ApplicationproblemJSON401.Status, sent.JSON202.Commands[0].Kind)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")
def test_a_generated_client_reads_brokers_and_sends_a_drain(tmp_path: Path) -> None:
    # the client, in a module of its own
    module = tmp_path / "client"
    module.mkdir()
    (module / "main.go").write_text(PROGRAM)
    document = str(FOLDER / "openapi.json")
    options = ("-generate", "types,client", "-package", "main", "-o", "console.gen.go", document)
    for command in (("mod", "init", "client"), ("run", GENERATOR, *options), ("mod", "tidy")):
        run_go(module, *command)
    run_go(module, "build", "-o", "client", ".")
    # a console, with the tables of a small cluster
    fleet(tmp_path / "tables")
    users = tmp_path / "users.toml"
    users.write_text(user_lines("alice", PASSWORD, "operator", {}))
    topic = Topic()
    reader = Reader(Store.at(tmp_path / "tables"), settings_of(tmp_path / "tables"), None)
    server = ConsoleServer("127.0.0.1:0", reader, (), None, Access.load(users), topic)
    try:
        program = [str(module / "client"), server.url, PASSWORD]
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [BROKER, "401", "drain-broker"]
    ((cluster, command),) = topic.sent
    assert (cluster, command.by, command.arguments) == ("eu-1", "alice", {"broker": BROKER})


def run_go(module: Path, *arguments: str) -> None:
    """Run a command of Go in a module's folder."""
    environment = os.environ | {"GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        ["go", *arguments],
        cwd=module,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
