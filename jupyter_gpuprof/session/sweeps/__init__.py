"""Budgets of sweeps: one guard (`guard.py`), and thin adapters for plain loops, Optuna and Ray Tune."""
