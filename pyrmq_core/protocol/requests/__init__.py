"""Requests and their responses, one file for a request or a few related ones, as values and as commands.

    broker        requests that a broker answers
    figures       requests of administrators for a broker's figures and settings
    groups        requests of administrators about consumer and producer groups
    nameserver    requests that a NameServer answers
    pop           requests of consumers that pop
    client        requests that a broker sends to a client

`settings_text` reads and writes the settings of brokers and NameServers as text. The first lines of each file say what
is supported, and what is left out.
"""
