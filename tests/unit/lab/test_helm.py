"""Helm, as the lab runs it: values go in as they are, and what helm says against them comes out."""

import json
from pathlib import Path

import pytest

from tests.lab.helm import Helm, HelmError

MAP = """apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
data: {word: {{ required "word is missing" .Values.word | quote }}}
"""


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """Helm with a chart of one ConfigMap."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "map.yaml").write_text(MAP)
    (tmp_path / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": "tiny", "version": "1.0.0"}))
    return Helm(chart=tmp_path, release="one", namespace="there")


def test_values_reach_the_templates_as_they_are(helm: Helm) -> None:
    """Quotes, braces and line ends in a value survive the way through helm's command line."""
    word = 'it\'s "{}",\n$HOME a=b'
    manifest = helm.template({"word": word})
    assert f"word: {json.dumps(word)}" in manifest
    assert "{name: one, namespace: there}" in manifest


def test_what_helm_refuses_is_said_in_its_own_words(helm: Helm) -> None:
    """An error names the command and carries helm's text."""
    with pytest.raises(HelmError, match=r"^helm template: .*word is missing"):
        helm.template({})


def test_a_chart_that_is_no_chart_does_not_pass_the_lint(helm: Helm) -> None:
    """`lint` raises where helm finds an error, and is content with the chart as it is."""
    helm.lint({"word": "fine"})
    (helm.chart / "Chart.yaml").write_text("{}")
    with pytest.raises(HelmError, match="name is required"):
        helm.lint({"word": "fine"})
