"""The job service for external workers: `python -m sbert_beam.job_service`; see `pipelines.job_service`."""

from sbert_beam.packages import import_own_packages

if __name__ == "__main__":
    import_own_packages()
    from pipelines.job_service import main

    main()
