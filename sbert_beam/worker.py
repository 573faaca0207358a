"""The worker process of a local run: `python -m sbert_beam.worker`, started by `pipelines.local_runner`."""

from sbert_beam.packages import import_own_packages

if __name__ == "__main__":
    import_own_packages()
    from pipelines.worker import main

    main()
