"""Files of Spark's checkpoint in a bucket: what conf/checkpoints.scala asks a server for that
answers as S3 does."""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from lb_stream.io.local.jars import spark_jars
from lb_stream.io.local.java import find_java
from lb_stream.kit.fetch_jars import fetch_jars
from lb_stream.store import Store
from tests.support.s3_server import Request, s3_server

pytestmark = pytest.mark.jvm

WRITES = """
import json, sys
from pyspark.java_gateway import launch_gateway
from py4j.protocol import Py4JJavaError
jvm = launch_gateway().jvm
conf = jvm.org.apache.hadoop.conf.Configuration()
given = json.loads(sys.argv[1])
for name, value in given["options"].items():
    conf.set(name, value)
path = lambda name: jvm.org.apache.hadoop.fs.Path(given["folder"] + "/" + name)
manager = jvm.lb_stream.ConditionalCheckpoints(path(""), conf)
found = {"at_first": manager.exists(path("offsets/7"))}

def written(name, text, may_replace):
    out = manager.createAtomic(path(name), may_replace)
    out.write(text.encode())
    return out

heir, stopped = (written("offsets/7", text, False) for text in ("heir", "stopped"))
heir.close()
heir.close()
try:
    stopped.close()
    found["second"] = "written"
except Py4JJavaError as error:
    found["second"] = error.java_exception.getClass().getName()
written("offsets/8", "given up", False).cancel()
found["there"] = str(bytes(manager.open(path("offsets/7")).readAllBytes()), "utf-8")
found["exists"] = [manager.exists(path(name)) for name in ("offsets/7", "offsets/8", "offsets")]
for text in ("one", "two"):
    written("state/0/0/3.changelog", text, True).close()
found["folder"] = manager.exists(path("state/0/0"))
written("offsets/9", "next", False).close()
manager.delete(path("offsets/7"))
found["listed"] = [status.getPath().getName() for status in manager.list(path("offsets"))]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def done() -> tuple[dict[str, Any], list[Request], dict[str, str]]:
    """What the manager says, what it asked for, and what is in the bucket then."""
    fetch_jars(extras=["s3"])
    with s3_server() as server:
        store = Store.at("s3://lb/checkpoint", server.options)
        given = {"folder": store.for_hadoop, "options": store.hadoop_options}
        jars = ":".join(str(path) for path in spark_jars())
        environment = os.environ | {
            "JAVA_HOME": str(find_java().path.resolve().parent.parent),
            "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {jars} pyspark-shell",
        }
        command = [sys.executable, "-c", WRITES, json.dumps(given)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-4_000:]
        asked = server.requests()
        there = {
            entry.name: bytes(store.get(f"{at}/{entry.name}")).decode()
            for at in ("offsets", "state/0/0")
            for entry in store.list(at)
        }
    return json.loads(ran.stdout.splitlines()[-1]), asked, there


def test_of_two_that_write_one_plan_the_second_is_refused_and_the_first_stays(
    done: tuple[Any, list[Request], dict[str, str]],
) -> None:
    found, asked, _ = done
    assert found["second"] != "written" and found["there"] == "heir"
    assert [
        request.status
        for request in asked
        if request.kind == "PUT" and request.key.endswith("offsets/7")
    ] == [
        200,
        412,
    ]


def test_what_is_given_up_was_never_there_and_what_may_be_replaced_is(
    done: tuple[Any, list[Request], dict[str, str]],
) -> None:
    found, _, there = done
    assert (found["at_first"], found["exists"], found["listed"]) == (
        False,
        [True, False, True],
        ["9"],
    )
    assert there == {"9": "next", "3.changelog": "two"}
    assert found["folder"], "a folder of the state, whose name is a number, too"


def test_a_file_is_one_request_and_a_look_for_a_plan_another_one(
    done: tuple[Any, list[Request], dict[str, str]],
) -> None:
    _, asked, _ = done
    of = {
        name: Counter(request.kind for request in asked if request.key.endswith(name))
        for name in ("offsets/7", "3.changelog", "offsets/8")
    }
    assert of["offsets/7"] == {"HEAD": 3, "PUT": 2, "GET": 1, "DELETE": 1}, (
        "one HEAD and the GET to read it"
    )
    assert of["3.changelog"] == {"PUT": 2}
    assert of["offsets/8"] == {"HEAD": 1}
    assert not [request for request in asked if request.kind == "PUT-COPY"]
