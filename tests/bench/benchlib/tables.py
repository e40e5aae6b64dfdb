"""Plain tables for people."""


def print_table(title, header, rows):
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print(f"\n{title}")
    for row in cells:
        first = row[0].ljust(widths[0])
        print("  " + "  ".join([first] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]).rstrip())


def print_goal(goal):
    print(f"  goal {goal['name']}: {goal['value']}, at most {goal['limit']}: {goal['verdict']}")
