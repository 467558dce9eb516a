"""Systems that are compared: a program for each, `with_…`, that is its worker or a client to be asked.

Or an app for its worker command, `app_…`. All of them run in the Python of their system: beside that they lean on
`exchange` and `marks` alone.
"""
