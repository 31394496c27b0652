def table(results):
    return ""


def write(results):
    return []
