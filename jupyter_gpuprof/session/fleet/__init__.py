"""A site's jobs and policies: reported, replayed, written for a real queue."""
