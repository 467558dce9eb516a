"""The API reference: OpenAPI document, Markdown pages, and the page at `/docs`."""
