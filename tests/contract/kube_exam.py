"""The exam that every Kubernetes API server sits, fake or real: what the port promises, asked over HTTP.

A class that inherits `KubeExam` provides the fixture `site`. Each test makes objects of its own.
"""

from tests.contract.kube_cordons_exam import CordonsExam
from tests.contract.kube_makes_exam import MakesExam
from tests.contract.kube_marks_exam import MarksExam
from tests.contract.kube_reads_exam import ReadsExam


class KubeExam(ReadsExam, MarksExam, CordonsExam, MakesExam):
    """The questions."""
