"""Java's String.hashCode, by which brokers compare tags and producers choose the queue of a sharding key."""


def string_hash_code(text: str) -> int:
    """Returns the signed 32-bit sum of s[i] * 31**(n-1-i) over UTF-16 units; a broker's tag filter compares these."""
    code = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            code = (code * 31 + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(units), 2):
            code = (code * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code >= 0x8000_0000 else code


def tags_code(tags: str | None) -> int:
    """Returns the hash of a message's tags in a consume queue (store/MessageExtBrokerInner.java); 0 without tags."""
    return string_hash_code(tags) if tags else 0
