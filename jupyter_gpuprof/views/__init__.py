"""The painters: records to text and HTML. They import records only."""
