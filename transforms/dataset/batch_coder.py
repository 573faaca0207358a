"""The coder of record batches: how they cross a shuffle."""

import apache_beam as beam
import pyarrow as pa


class RecordBatchCoder(beam.coders.Coder):
    """Encodes `pa.RecordBatch` as an Arrow IPC stream; of a slice, only its own rows."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        """Serializes a batch with its metadata."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return sink.getvalue().to_pybytes()

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        """Reads a batch back."""
        with pa.ipc.open_stream(encoded) as reader:
            return reader.read_next_batch()

    def estimate_size(self, value: pa.RecordBatch) -> int:
        """Beam asks for it even where nothing is serialized, so it must be cheap."""
        return int(value.nbytes)

    def is_deterministic(self) -> bool:
        """Equal batches may have different bytes at the positions of nulls."""
        return False


beam.coders.registry.register_coder(pa.RecordBatch, RecordBatchCoder)


def typed_batches(batches: beam.PCollection) -> beam.PCollection[pa.RecordBatch]:
    """Marks an output of several as record batches.

    Beam infers no type for them and would pickle the batches, which loses whether items of lists can be null: a part
    would then have other bytes on an engine that does not fuse the steps.
    """
    batches.element_type = pa.RecordBatch
    return batches
