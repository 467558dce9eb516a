"""Declared shapes of configuration: one library under settings, dispatch files and the options of an app.

A value has a `Kind` (`kinds`): what it expects, how it is read from TOML or from a text, how it is shown. Tables of
keys with kinds are a shape (`shapes`), and a `ShapeReader` reads a whole tree by it. It collects every problem with
path and origin (`problems`, `paths`, `toml_lines`) instead of stopping at the first, and suggests the names most
likely meant (`nearest`). The same shape gives a JSON Schema (`json_schema`).

Every refusal of a kind reads "must be WHAT IT EXPECTS, not THE VALUE", so that it names what to do. Rules that concern
several values are checks of the package that declares the shape.
"""
