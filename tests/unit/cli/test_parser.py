"""The command line and the Hold resource agree on their words."""

from pathlib import Path

import yaml

from lockstep.cli.parser import OWN_CLASSES

CRD = Path(__file__).parents[3] / "deploy" / "crds" / "hold.yaml"


def test_the_classes_on_offer_are_those_that_the_schema_takes() -> None:
    """Nothing is offered that the API server would refuse."""
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert set(OWN_CLASSES) == set(schema["properties"]["spec"]["properties"]["class"]["enum"])
