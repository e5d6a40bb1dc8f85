"""Requests and their responses, one file for each conversation, as values and as commands.

    broker        requests that a broker answers
    figures       requests of administrators for a broker's figures and settings
    groups        requests of administrators about consumer and producer groups
    nameserver    requests that a NameServer answers
    pop           requests of consumers that pop
    client        requests that a broker sends to a client

`settings_text` is the form of settings that brokers and NameServers share.

The first lines of each file say what is supported, and what is left out.
"""
