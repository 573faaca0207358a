"""Where and how the jobs are run: images, templates, clusters and schedules."""
