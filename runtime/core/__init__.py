"""Settings, errors and warnings, frozen dataclasses, disk cache, host memory pool, profiles and traces, progress bars,
forks, boxes, runs broken off in time: imports nothing of ours.

In reading order: frozen, errors, settings, disk_cache, cache_contents, host_pool, gc_pause, deferred_fork, progress,
profile, perfetto, readable_text, time_limit, box_index.
"""
