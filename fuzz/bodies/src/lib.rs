//! The bodies of the fuzz targets as plain functions, replayed over the corpus by ordinary tests
