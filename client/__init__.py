"""The client: a library that writes shuffles to workers and reads them back."""
