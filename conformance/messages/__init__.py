"""What is sent and received: requests, exchanges, and the shapes of operations."""
