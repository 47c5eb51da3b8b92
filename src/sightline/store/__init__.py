"""The run folder: manifest, probes, one parquet file per arm and shard, each written whole or not at all."""
