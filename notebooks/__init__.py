"""The course: every semantic of the service, shown by running it."""
