"""What the tests of Falkirk stand on. Nothing in the package imports it."""
