"""The job as Dataflow would get it, carried out on this machine."""

from apache_beam import Pipeline
from apache_beam.options.pipeline_options import PipelineOptions, TestOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.runner import PipelineResult
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

from pipelines.stage_order import OrderedRunner


class DataflowGraphRunner(DataflowRunner):
    """Builds the graph by a dry run of Dataflow's runner, serialises it, and executes what was serialised.

    All that Dataflow's runner does to a graph is done: its overrides, packed combiners, coders and side inputs. Only
    the workers' container image is replaced by this process.
    """

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions, pipeline_proto=None) -> PipelineResult:
        """Runs what Dataflow would be sent."""
        options.view_as(TestOptions).dry_run = True
        sent = super().run_pipeline(pipeline, options, pipeline_proto).job.proto_pipeline.SerializeToString()
        graph = beam_runner_api_pb2.Pipeline.FromString(sent)
        here = EmbeddedPythonEnvironment.default().to_runner_api(None)
        for environment in graph.components.environments.values():
            environment.urn, environment.payload = here.urn, here.payload
            del environment.dependencies[:]
        return OrderedRunner().run_via_runner_api(graph, PipelineOptions())
