import json
from pathlib import Path

import pytest

from lockstep.slurm import answers, errors, wire
from lockstep.slurm.answers import Answer, check

JSON = "application/json"
GOLDEN = Path(__file__).parent / "golden"


def said(status: int, number: int = 0, error: str = "", description: str = "") -> Answer:
    """An answer with one error in it."""
    one = {"error_number": number, "error": error, "description": description}
    return Answer(status=status, content_type=JSON, body=json.dumps({"errors": [one]}).encode())


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (said(422, 2018, "Invalid node name specified"), errors.Refused),
        (said(500, 2018, "Invalid node name specified"), errors.Refused),
        (said(422, 2180, "Invalid node state transition"), errors.Refused),
        (said(500, 2028, "Invalid node state specified"), errors.Refused),
        (said(404, 2017, "Invalid job id specified"), errors.Refused),
        (said(200, 2000, "Invalid partition name specified"), errors.Refused),
        (said(200, 0, "No error", "Failure to query node x"), errors.Refused),
        (said(422, 2010, "Invalid user id"), errors.Denied),
        (said(500, 2010, "Invalid user id"), errors.Denied),
        (said(511, 1007, "Protocol authentication error"), errors.Denied),
        (said(500, 1007, "Protocol authentication error"), errors.Denied),
        (Answer(status=401, content_type="text/plain", body=b"Authentication failure"), errors.Denied),
        (Answer(status=403), errors.Denied),
        (said(502, 1800, "Unable to contact slurm controller (connect failure)"), errors.Unreachable),
        (said(200, 1800, "Unable to contact slurm controller (connect failure)"), errors.Unreachable),
        (said(500, 2027, "Slurm backup controller in standby mode"), errors.Unreachable),
        (said(500, 5004, "Socket timed out on send/recv operation"), errors.Unreachable),
        (said(500, -1, "Unspecified error", "Unable to query partitions"), errors.Unreachable),
        (Answer(status=500, content_type=JSON, body=b"{}"), errors.Unreachable),
        (Answer(status=502, content_type="text/html", body=b"<html>Bad Gateway</html>"), errors.Unreachable),
        (Answer(status=200, content_type="text/html", body=b"<html>Sign in</html>"), errors.Unreachable),
        (Answer(status=302, content_type="text/html"), errors.Unreachable),
        (Answer(status=200, content_type=JSON, body=b'{"nodes": [{"na'), errors.Unreachable),
        (Answer(status=200, content_type=JSON, body=b""), errors.Unreachable),
        (said(500, 1804, "slurmctld backoff"), errors.Busy),
        (Answer(status=429, retry_after_s=7.0), errors.Busy),
        (Answer(status=503, content_type="text/html", body=b"<html>"), errors.Busy),
        (Answer(status=404, content_type="text/plain", body=b"Unable to find requested URL"), errors.Unsupported),
        (said(500, 8002, "Plugin not supported"), errors.Unsupported),
        (Answer(status=400, content_type="text/plain", body=b"Unable to parse query."), errors.Refused),
    ],
    ids=lambda value: f"{value.status}-{value.body[:60]!r}" if isinstance(value, Answer) else value.__name__,
)
def test_each_answer_is_what_its_caller_can_do_about_it(answer: Answer, kind: type[errors.SlurmError]) -> None:
    """Slurm's error number decides before the status, which differs between releases."""
    with pytest.raises(errors.SlurmError) as caught:
        check(answer, wire.Nodes)
    assert type(caught.value) is kind


def test_busy_says_when_to_come_back() -> None:
    """As the answer said it."""
    with pytest.raises(errors.Busy) as caught:
        check(Answer(status=429, retry_after_s=7.0), wire.Nodes)
    assert caught.value.after_s == 7.0


def test_unchanged_is_none() -> None:
    """304 has no body."""
    assert check(Answer(status=304), wire.Nodes) is None


def test_warnings_are_no_errors() -> None:
    """A whole answer with warnings is an answer."""
    body = (GOLDEN / "26.05-v0.0.45-no-job-changes.json").read_bytes()
    reply = check(Answer(status=200, content_type="application/json; charset=utf-8", body=body), wire.Jobs)
    assert reply is not None
    assert reply.warnings


def test_an_errors_text_is_bounded_one_line_and_holds_no_page() -> None:
    """Neither a proxy's page nor a flood of words reaches a log."""
    with pytest.raises(errors.Refused) as caught:
        check(said(422, 2028, "x\ny" * 2000), wire.Nodes)
    assert len(str(caught.value)) <= errors.TEXT_MAX
    assert "\n" not in str(caught.value)
    with pytest.raises(errors.Unreachable) as page:
        check(Answer(status=502, content_type="text/html", body=b"<html>secret page</html>"), wire.Nodes)
    assert "secret" not in str(page.value)


def test_the_unknown_node_that_was_recorded_is_known_as_such() -> None:
    """Every release says it so: 200, number 0."""
    for path in GOLDEN.glob("*-no-node.json"):
        with pytest.raises(errors.Refused) as caught:
            check(Answer(status=200, content_type=JSON, body=path.read_bytes()), wire.Nodes)
        assert caught.value.numbers <= answers.NO_NODE_READ
