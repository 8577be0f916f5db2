"""Records of metrics without those that depend on the machine and its load."""

from jaxformer.training.records import METERS

CPU_METERS = [name for name in METERS if name.startswith("seconds_")]


def without_meters(records):
    return [
        {k: v for k, v in record.items() if k not in METERS and not k.endswith("_per_second")}
        for record in records
    ]
