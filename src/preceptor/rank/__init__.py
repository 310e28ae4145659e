"""Zoo x task x metrics -> a ranking of teachers; on this machine or on a Ray cluster."""

from preceptor.rank.ranking import rank

__all__ = ["rank"]
