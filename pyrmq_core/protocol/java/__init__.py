"""Java's text and number formats, read and written as Java does.

    json_text          JSON bodies as fastjson writes them, with unquoted integer keys
    object_keys        JSON objects whose keys are objects, as fastjson writes them
    members            a dataclass as the members of a JSON object
    json_bounds        limits of received JSON: its depth, and no lone surrogates
    properties_text    `key=value` configuration files
    integers           whole numbers of 32 and 64 bits
    string_hash        String.hashCode

Nothing here knows RocketMQ's requests or messages.
"""
